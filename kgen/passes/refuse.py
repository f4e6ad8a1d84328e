"""Programs that the language admits and no pass lowers yet: an error at their place, with what to write instead."""

from __future__ import annotations

from kgen.errors import KgenError, Location
from kgen.ir.nodes import Kernel, Span


def not_yet(kernel: Kernel, span: Span, what: str, hint: str) -> KgenError:
    """The error for a construct that is of the language but not lowered."""
    where = Location(kernel.path, span.line, span.column, span.end_column or None)
    return KgenError(f"{what} isn't lowered yet", code="not-implemented", location=where, hint=hint)

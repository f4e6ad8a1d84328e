"""What stops an execution."""

from __future__ import annotations

from kgen.errors import KgenError


class ExecutionError(KgenError):
    """The compiled kernel does what no kernel may, or what isn't known here."""

    def __init__(self, message: str, *, code: str = "execute", hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint or "look at the compiled IR with `kgen trace`")

"""What the cross-field checks share: the spec, and errors at a field's own line with the nearest valid name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kgen.errors import KgenError
from kgen.spec.explain import dotted, near, shown
from kgen.spec.load import LoadedSpec
from kgen.spec.models import Param
from kgen.spec.nodes import Path


class Lookup:
    """The spec under check."""

    def __init__(self, loaded: LoadedSpec) -> None:
        self.loaded = loaded
        self.spec = loaded.spec

    def error(self, code: str, path: Path, message: str, hint: str, *, key: bool = False) -> KgenError:
        """An error at a field, its path named in front."""
        location = self.loaded.location(path, key=key)
        return KgenError(f"{dotted(path)}: {message}", code=f"spec-{code}", location=location, hint=hint)

    def need(self, what: str, name: str, known: Collection[str], path: Path, *, key: bool = False) -> None:
        """Refuse a name that isn't one of `known`; `what` is its kind (`tensor`), also the code's end."""
        if name not in known:
            code = f"unknown-{what.replace(' ', '-')}"
            raise self.error(code, path, f"unknown {what} {shown(name)}", near(name, known), key=key)

    def unique(self, names: Sequence[object], path: Path) -> None:
        """Refuse a list that names something twice."""
        for position, name in enumerate(names):
            if name in names[:position]:
                raise self.error("repeated", (*path, position), f"{shown(name)} is listed twice", "remove one of them")

    def some(self, names: Sequence[object], path: Path, hint: str) -> None:
        """Refuse an empty list."""
        if not names:
            raise self.error("empty-list", path, "the list is empty", hint)


def stands_for(param: Param) -> str:
    """The spec's name of what a parameter stands for."""
    return param.to or param.name

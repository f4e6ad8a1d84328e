"""Read a spec: bounded YAML, validated models, and the line of every field for later complaints."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kgen.errors import KgenError, Location, printable
from kgen.spec.explain import span_of, validate
from kgen.spec.models import Spec
from kgen.spec.nodes import MAX_BYTES, Node, Source, parse

_FILE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True)
class Document:
    """A parsed YAML file and the places in it."""

    path: Path
    text: str
    root: Node = field(repr=False)
    source: Source = field(repr=False)

    def location(self, path: Sequence[str | int], *, key: bool = False) -> Location:
        """The place of a field's value, such as `("kernels", "x", "tiles", "K", 0)`, or of its key."""
        return self.source.location(span_of(self.root, path, key=key))


@dataclass(frozen=True)
class LoadedSpec:
    """A spec with the file it came from."""

    spec: Spec
    document: Document = field(repr=False)

    @property
    def path(self) -> Path:
        """The spec's file."""
        return self.document.path

    @property
    def text(self) -> str:
        """The file's text, as read."""
        return self.document.text

    def location(self, path: Sequence[str | int], *, key: bool = False) -> Location:
        """The place of a field's value, or of its key; the deepest place known for a path that isn't there."""
        return self.document.location(path, key=key)


def load_spec(path: Path) -> LoadedSpec:
    """The spec in a file, checked field by field; `check_spec` then checks the fields against each other."""
    if not _FILE_NAME.fullmatch(path.name):
        # It stands in the first line of every emitted file, where a line break or `coding=` would be more than text.
        raise KgenError(
            f"{printable(path.name)[:80]!r} can't be the name of a spec's file",
            code="spec-file-name",
            hint="use letters, digits, '.', '_' and '-', such as gdn.yaml",
        )
    document = read_document(path, "spec")
    return LoadedSpec(validate(Spec, document.root, document.source), document)


def read_document(path: Path, kind: str) -> Document:
    """The YAML tree of a file; `kind` starts the codes of its errors."""
    if path.is_symlink() and not _stays(path):
        # In a stranger's change it could lead to any file, whose lines an error would then show.
        raise KgenError(
            f"{printable(str(path))} is a link out of its folder", code=f"{kind}-link", hint="put the file itself there"
        )
    text = read_text(path, kind, MAX_BYTES)
    source = Source(str(path), text)
    return Document(path, text, parse(source, text), source)


def _stays(path: Path) -> bool:
    """Whether a link leads to something in its own folder."""
    try:
        return path.resolve().is_relative_to(path.parent.resolve())
    except (OSError, RuntimeError):  # a circle of links
        return False


def read_text(path: Path, kind: str, limit: int) -> str:
    """The text of a regular UTF-8 file of at most `limit` bytes."""
    shown = printable(str(path))
    try:
        # Asked before opening: opening a pipe or a device could wait for ever.
        if not stat.S_ISREG(path.stat().st_mode):
            raise KgenError(f"{shown} isn't a file", code=f"{kind}-unreadable", hint="name a file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid path"
        hint = "check the path" if isinstance(error, FileNotFoundError) else "make the file readable"
        raise KgenError(f"can't read {shown}: {reason}", code=f"{kind}-unreadable", hint=hint) from None
    if len(data) > limit:
        raise KgenError(f"{shown} is larger than {limit} bytes", code=f"{kind}-too-large", hint="split the file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1)
        place = Location(shown, line, column)
        raise KgenError("not UTF-8 text", code=f"{kind}-encoding", location=place, hint="save it as UTF-8") from None

"""From a program reference in a spec to a file that the spec may name: one inside its own folder, or one of kgen's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kgen.errors import KgenError
from kgen.resources import specs_dir
from kgen.spec.explain import near
from kgen.spec.load import LoadedSpec, read_text

MAX_BYTES = 256 * 1024
_MAX_LISTED = 500
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class ProgramFile:
    """A tile program's file: `name` is the reference's own relative path, the same on every machine."""

    path: Path
    name: str
    function: str
    text: str


def read_program(loaded: LoadedSpec, kernel: str) -> ProgramFile:
    """The program of a kernel; any reason not to read it is an error at the kernel's `program` field."""
    place = loaded.location(("kernels", kernel, "program"))
    name, _, function = loaded.spec.kernels[kernel].program.partition(":")
    try:
        path = locate(loaded.path.parent, name)
        return ProgramFile(path, name, function, read_text(path, "program", MAX_BYTES))
    except KgenError as error:
        raise error.at(place) from None


def locate(folder: Path, name: str, packaged: Path | None = None) -> Path:
    """The resolved path of a program: in the spec's folder, else among kgen's own; links may not lead out of both.

    A spec that a stranger sent could otherwise show the text of any file of the machine in an error or a listing.
    """
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        raise _escape(name)
    own = packaged or specs_dir()
    allowed = [folder.resolve(), (own / "programs").resolve()]
    bases = [folder, own] if pure.parts[0] == "programs" else [folder]
    for base in bases:
        try:
            path = (base / pure).resolve(strict=True)
        except (OSError, RuntimeError):  # not there, or a circle of links
            path = _unresolved(base / pure)
        # Asked whether it exists or not: the difference would tell what is on the machine.
        if not any(path.is_relative_to(root) for root in allowed):
            raise _escape(name)
        if not path.is_file():
            continue
        if path.suffix != ".py":
            message = f"{name} leads to {path.name!r}, which isn't a .py file"
            raise KgenError(message, code="program-escape", hint="name a tile program")
        return path
    raise _missing(name, bases)


def _unresolved(path: Path) -> Path:
    """Where a path that doesn't exist would be; the root for a link, whatever it points at."""
    try:
        return Path("/") if path.is_symlink() else path.resolve()
    except (OSError, RuntimeError):
        return Path("/")


def _escape(name: str) -> KgenError:
    return KgenError(
        f"program path {name!r} leaves the spec's folder",
        code="program-escape",
        hint="keep programs in the spec's folder, or use one of kgen's: programs/<file>.py:<function>",
    )


def _missing(name: str, bases: Sequence[Path]) -> KgenError:
    """What programs there are, in the folder that the reference means."""
    parent = PurePosixPath(name).parent
    known: set[str] = set()
    for base in bases:
        folder = (base / parent).resolve()
        # Nor may the list of what there is show another folder's names.
        if folder.is_dir() and folder.is_relative_to(base.resolve()):
            files = [f for f in sorted(folder.glob("*.py")) if _NAME.fullmatch(f.name)]  # what a reference can name
            known |= {str(parent / file.name) for file in files[:_MAX_LISTED]}
    return KgenError(f"no program file {name!r}", code="program-missing", hint=near(name, known))

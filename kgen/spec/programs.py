"""From a program reference in a spec to a file that the spec may name: one inside its own folder, or one of kgen's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kgen.errors import KgenError
from kgen.resources import specs_dir
from kgen.spec.explain import near
from kgen.spec.load import LoadedSpec, read_text

MAX_BYTES = 256 * 1024
_MAX_LISTED = 500


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
    for base in (folder, own):
        try:
            path = (base / pure).resolve()
            exists = path.exists()
        except (OSError, RuntimeError):  # a loop of links
            raise _escape(name) from None
        if exists or (base / pure).is_symlink():
            if not any(path.is_relative_to(root) for root in allowed):
                raise _escape(name)
            if path.suffix != ".py":
                raise KgenError(
                    f"{name} leads to {path.name!r}, which isn't a .py file",
                    code="program-escape",
                    hint="name a tile program",
                )
            if not path.is_file():
                raise _missing(name, (folder, own))
            return path
    raise _missing(name, (folder, own))


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
            known |= {str(parent / file.name) for file in sorted(folder.glob("*.py"))[:_MAX_LISTED]}
    return KgenError(f"no program file {name!r}", code="program-missing", hint=near(name, known))

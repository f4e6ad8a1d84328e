"""Was anything changed since the last build? Answered from file hashes alone, with nothing but the standard library.

A stamp lives in kgen's cache, never beside the package. It covers the spec and all it names, the recorded plan, every
file of kgen itself, and the package as it was written. Whatever it can't read counts as changed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from kgen.storage import home_folder, replace_file

_HERE = Path(__file__).resolve().parent
_OWN = (".py", ".j2", ".yaml")
_MAX_BYTES = 16 << 20  # more than any input or output may have


def _stamp_file(spec: Path, out: Path | None) -> Path:
    key = f"{spec.resolve()}\0{out.resolve() if out else ''}"
    return home_folder() / "builds" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _hash(path: Path) -> str:
    """Of a plain file: one that has become a pipe or a device since could be read for ever."""
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        raise OSError(f"{path} isn't a file of a sane size")
    with path.open("rb") as file:
        return hashlib.sha256(file.read(_MAX_BYTES)).hexdigest()


def _own_files() -> str:
    """One hash over kgen's sources, its data and the Python that runs them."""
    total = hashlib.sha256(sys.version.encode())
    folders = [_HERE, _HERE.parent / "templates"]
    for path in sorted(p for f in folders if f.is_dir() for p in f.rglob("*") if p.suffix in _OWN and p.is_file()):
        total.update(f"{path.relative_to(_HERE.parent).as_posix()}\0{_hash(path)}\0".encode())
    return total.hexdigest()


def unchanged(spec: Path, out: Path | None) -> Path | None:
    """The package's folder if a build would write exactly what is there, else None."""
    try:
        stamp = json.loads(_stamp_file(spec, out).read_bytes())
        folder = Path(stamp["folder"])
        same = all(_hash(Path(p)) == h for p, h in stamp["files"].items())
        names = {p.name for p in folder.iterdir()} - {"__pycache__"}
        known = {Path(p).name for p in stamp["files"] if Path(p).parent == folder} | set(stamp["absent"])
        missing = [p for p in stamp["absent"] if (folder / p).exists()]
        return folder if same and names <= known and not missing and stamp["kgen"] == _own_files() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):  # a circle of links is the last
        return None


def remember(spec: Path, out: Path | None, folder: Path, read: Iterable[Path], written: Iterable[str]) -> None:
    """Records a finished build; failing to is no error, the next build only takes longer."""
    plan = folder / "plan.json"
    files = [*read, *(folder / name for name in written), *([plan] if plan.is_file() else [])]
    absent = [] if plan.is_file() else ["plan.json"]
    try:
        stamp = {
            "folder": str(folder.resolve()),
            "files": {str(p.resolve()): _hash(p) for p in files},
            "absent": absent,
            "kgen": _own_files(),
        }
        replace_file(_stamp_file(spec, out), json.dumps(stamp))
    except (OSError, RuntimeError):  # the latter: there is no home folder
        return

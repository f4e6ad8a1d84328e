"""Files that a user names for a command to write: checked before the work, written after it.

A regular file is replaced in one step, also behind a link, which stays. A device or a pipe is written to. Whatever else
stands at a path is left alone.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kgen.errors import KgenError
from kgen.storage import replace_file


def check_outputs(**paths: Path | None) -> None:
    """Whether each path, by its option's name, can be written, and each is another file."""
    seen: dict[str, Path] = {}
    for option, path in paths.items():
        if path is None:
            continue
        _check(option, path)
        for other, earlier in seen.items():
            if _same(path, earlier):
                raise _error(f"--{other} and --{option} are the same file: {path}", "name two files")
        seen[option] = path


def write_output(path: Path, text: str) -> None:
    """Write a file whose path was checked."""
    try:
        if _is_stream(_mode(path)):
            with path.open("w", encoding="utf-8") as file:
                file.write(text)
        else:
            replace_file(Path(os.path.realpath(path)), text, 0o644)
    except OSError as error:
        raise _error(f"cannot write {path}: {error.strerror or error}", "name a file in a folder of yours") from error


def _check(option: str, path: Path) -> None:
    """Nothing is opened: that would wait for a pipe's reader and empty a file."""
    mode, folder = _mode(path), Path(os.path.realpath(path)).parent
    if mode is not None and not (stat.S_ISREG(mode) or _is_stream(mode)):
        kind = "a folder" if stat.S_ISDIR(mode) else "neither a file nor a pipe"
        raise _error(f"--{option} {path} is {kind}", "name a file")
    if _is_stream(mode):
        allowed = os.access(path, os.W_OK)
    elif mode is not None and _is_printed_to(path):
        raise _error(f"--{option} {path} is where the command prints", "name another file")
    elif not folder.is_dir():
        raise _error(f"--{option} {path}: there is no folder {folder}", "make the folder first")
    else:
        allowed = os.access(folder, os.W_OK | os.X_OK)
    if not allowed:
        raise _error(f"--{option} {path}: you may not write there", "name a file in a folder of yours")


def _mode(path: Path) -> int | None:
    """What is at a path, behind links; None where nothing is."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _error(f"cannot write {path}: {error.strerror or error}", "name a file in a folder of yours") from error


def _is_stream(mode: int | None) -> bool:
    return mode is not None and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))


def _is_printed_to(path: Path) -> bool:
    """Whether standard output goes to this file; what is printed later would be lost with the replaced one."""
    try:
        return os.path.samestat(path.stat(), os.fstat(1))
    except OSError:  # it is closed
        return False


def _same(a: Path, b: Path) -> bool:
    if os.path.realpath(a) == os.path.realpath(b):
        return True
    return a.exists() and b.exists() and a.samefile(b)


def _error(message: str, hint: str) -> KgenError:
    return KgenError(message, code="output", hint=hint)

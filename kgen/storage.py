"""Files that kgen keeps: where those that can be made again lie, and how any of them is replaced in one step.

Nothing but the standard library: it is read before a build has decided whether there is anything to do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def home_folder(environ: Mapping[str, str] | None = None) -> Path:
    """kgen's folder for things that can be made again: `KGEN_HOME`, or `~/.cache/kgen`."""
    setting = (os.environ if environ is None else environ).get("KGEN_HOME")
    return Path(setting).expanduser() if setting else Path.home() / ".cache" / "kgen"


def replace_file(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Writes a file so that a reader sees the old one, the new one or none, and a failure (OSError) leaves nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise

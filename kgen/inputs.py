"""Everything that a build reads, and the hashes over it. Imports no pydantic, so that an unchanged build is noticed
quickly."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest(parts: Iterable[tuple[str, bytes]]) -> str:
    """sha256 over named parts; names and lengths are in it, so that no two inputs run together."""
    total = hashlib.sha256()
    for name, data in sorted(parts):
        total.update(f"{name}\0{len(data)}\0".encode())
        total.update(data)
    return total.hexdigest()


def folder_parts(folder: Path, prefix: str, suffixes: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Files below a folder by relative name."""
    return [
        (f"{prefix}/{p.relative_to(folder).as_posix()}", p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.suffix in suffixes and p.is_file()
    ]

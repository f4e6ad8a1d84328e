"""A content-addressed store of results: a JSON file a key, and one for the final IR where there is one.

The key is made of what went in: the compiler's own output differs between runs (its workspace offsets do). Safe to
share between processes and to delete.
"""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from kgen.storage import replace_file

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kept = TypeVar("Kept", bound="DataclassInstance")
SCHEMA = 3  # raise when a stored result changes its fields or its meaning


def content_key(parts: Mapping[str, Any]) -> str:
    """sha256 over everything that a result depends on, independent of the order of keys."""
    text = json.dumps({"schema": SCHEMA, **parts}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def code_hash(files: Iterable[Path]) -> str:
    """A hash of source files, for results that are only as good as the code that made them."""
    return content_key({f"{f.parent.name}/{f.name}": f.read_text(encoding="utf-8") for f in sorted(files)})


def from_fields(kind: type[Kept], stored: Mapping[str, Any] | None) -> Kept | None:
    """A dataclass from what was stored of it, or None unless its fields are there, all of them and no other (a default
    stands for nothing lost), each of its type and range."""
    if stored is None or stored.keys() != {field.name for field in fields(kind)}:
        return None
    try:
        found: Kept = _adapter(kind).validate_python(stored)
    except ValidationError:
        return None
    return found


@functools.cache
def _adapter(kind: type[DataclassInstance]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class ResultCache:
    """Reads never fail, writes never stop a compile: a lost entry is only time."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None keeps nothing."""
        self._folder = folder
        self._warned = False

    def get(self, key: str) -> dict[str, Any] | None:
        """The stored fields, or None where there are none or they can't be read."""
        entry = self._entry(key)
        if entry is None or not isinstance(entry.get("result"), dict):
            return None
        result: dict[str, Any] = entry["result"]
        return result

    def text(self, key: str) -> str | None:
        """The text that was stored with a result, or None: it must be the very one that the result is of."""
        entry = self._entry(key)
        if entry is None:
            return None
        try:
            text = zlib.decompress(self._path(key, "ir.z").read_bytes())
            return text.decode() if _sha256(text) == entry.get("text") else None
        except (OSError, ValueError, zlib.error, MemoryError):
            return None

    def put(self, key: str, result: Mapping[str, Any], text: str | None = None) -> None:
        """Store atomically: a reader sees the old file, the new one or none. The text goes first, so that a result
        that is there has its own."""
        if self._folder is None:
            return
        encoded = text.encode() if text is not None else None
        entry = {"key": key, "text": _sha256(encoded) if encoded is not None else None, "result": dict(result)}
        try:
            if encoded is not None:
                replace_file(self._path(key, "ir.z"), zlib.compress(encoded, 1))
            replace_file(self._path(key), json.dumps(entry))
        except OSError as error:
            self._warn(error)

    def _entry(self, key: str) -> dict[str, Any] | None:
        if self._folder is None:
            return None
        try:
            entry = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return entry if isinstance(entry, dict) and entry.get("key") == key else None

    def _path(self, key: str, kind: str = "json") -> Path:
        """Two levels, so that no folder grows without bound."""
        assert self._folder is not None
        return self._folder / key[:2] / f"{key}.{kind}"

    def _warn(self, error: OSError) -> None:
        """Say once that results aren't kept."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"results are not kept ({error}): set KGEN_HOME to a folder with room", RuntimeWarning, stacklevel=3
            )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

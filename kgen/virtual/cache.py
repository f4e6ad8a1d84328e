"""A content-addressed store of results: a JSON file a key, and one for the final IR where there is one.

The key is made of what went in: the compiler's own output differs between runs (its workspace offsets do). Safe to
share between processes and to delete.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgen.storage import replace_file

SCHEMA = 2  # raise when a stored result changes its fields or its meaning


def content_key(parts: Mapping[str, Any]) -> str:
    """sha256 over everything that a result depends on, independent of the order of keys."""
    text = json.dumps({"schema": SCHEMA, **parts}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class ResultCache:
    """Reads never fail, writes never stop a compile: a lost entry is only time."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` None keeps nothing."""
        self._folder = folder
        self._warned = False

    def get(self, key: str) -> dict[str, Any] | None:
        """The stored fields, or None where there are none or they can't be read."""
        if self._folder is None:
            return None
        try:
            entry = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("key") != key or not isinstance(entry.get("result"), dict):
            return None
        result: dict[str, Any] = entry["result"]
        return result

    def text(self, key: str) -> str | None:
        """The text stored with a result, or None."""
        if self._folder is None:
            return None
        try:
            return zlib.decompress(self._path(key, "ir.z").read_bytes()).decode()
        except (OSError, ValueError, zlib.error):
            return None

    def put(self, key: str, result: Mapping[str, Any], text: str | None = None) -> None:
        """Store atomically: a reader sees the old file, the new one or none. The text goes first, so that a result
        that is there has its own."""
        if self._folder is None:
            return
        try:
            if text is not None:
                replace_file(self._path(key, "ir.z"), zlib.compress(text.encode(), 1))
            replace_file(self._path(key), json.dumps({"key": key, "result": dict(result)}))
        except OSError as error:
            self._warn(error)

    def _path(self, key: str, kind: str = "json") -> Path:
        """Two levels, so that no folder grows without bound."""
        assert self._folder is not None
        return self._folder / key[:2] / f"{key}.{kind}"

    def _warn(self, error: OSError) -> None:
        """Say once that results aren't kept."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"results are not cached: {error}", RuntimeWarning, stacklevel=3)

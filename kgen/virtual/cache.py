"""A content-addressed store of compile results: one JSON file a key, safe to share between processes and to delete."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgen.storage import replace_file

SCHEMA = 1  # raise when a stored result changes its fields or its meaning


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

    def put(self, key: str, result: Mapping[str, Any]) -> None:
        """Store atomically: a reader sees the old file, the new one or none."""
        if self._folder is None:
            return
        try:
            replace_file(self._path(key), json.dumps({"key": key, "result": dict(result)}))
        except OSError as error:
            self._warn(error)

    def _path(self, key: str) -> Path:
        """Two levels, so that no folder grows without bound."""
        assert self._folder is not None
        return self._folder / key[:2] / f"{key}.json"

    def _warn(self, error: OSError) -> None:
        """Say once that results aren't kept."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"compile results are not cached: {error}", RuntimeWarning, stacklevel=3)

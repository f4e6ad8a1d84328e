"""Tile tables as a generated package carries them: made by the planner, printed by the emitter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TileTable:
    """What `tiles.py` holds: see templates/tiles.py.j2."""

    default_target: str
    cores: dict[str, dict[str, int]]
    capacities: dict[str, tuple[int, int, int]]
    pointer_targets: tuple[str, ...]
    margin: float
    whole: dict[str, tuple[str, ...]]  # dims that one tile of a kernel must cover
    table: dict[str, dict[str, dict[tuple[int, ...], dict[str, int]]]]
    expressions: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, str, str]]]]  # kernel: arguments, source by bits

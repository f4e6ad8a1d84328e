"""How often Python looks for cycles of garbage: seldom, since what kgen makes are trees of values that hold none.

With Python's own setting a collection walks every IR, plan and spec in memory each few thousand new values, which is a
quarter of the time of reading a large IR.
"""

from __future__ import annotations

import gc

NEW_VALUES = 200_000  # between two looks


def relax() -> None:
    """For a process of kgen's own: never called where kgen is a library."""
    gc.set_threshold(NEW_VALUES, 20, 50)

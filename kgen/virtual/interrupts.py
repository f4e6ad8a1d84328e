"""Ctrl-C, taken at a safe place: an exception out of the blue may leave a lock of the thread pool held for ever."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back(event: threading.Event) -> Iterator[None]:
    """While this is open, an interrupt sets an event and nothing else; whoever waits for work looks at it and raises.

    Only the main thread is interrupted, so in any other, and where someone has a handler of their own, nothing changes.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def note(_number: int, _frame: FrameType | None) -> None:
        event.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

"""Child processes that can't outlive their time or leave grandchildren behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_EVERY_S = 0.2  # how soon a cancelled wait ends


class Limit:
    """A moment by which a wait must end; it also ends when `cancelled` is set."""

    def __init__(self, seconds: float, cancelled: threading.Event | None = None) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._cancelled = cancelled

    def over(self) -> bool:
        """Whether the wait must end now."""
        return time.monotonic() >= self._end or (self._cancelled is not None and self._cancelled.is_set())

    def slice_s(self) -> float:
        """Seconds to wait before looking again."""
        return max(0.0, min(_LOOK_EVERY_S, self._end - time.monotonic()))


@dataclass(frozen=True)
class Finished:
    """How a child ended; `returncode` is negative for a signal, None when it ran past its limit."""

    returncode: int | None
    output: str  # stdout and stderr together, as the child interleaved them


def run_limited(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, limit: Limit) -> Finished:
    """Run without a shell in a process group of its own, killed whole at the limit or when we are interrupted."""
    child = subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(env),
        cwd=cwd, start_new_session=True, text=True, encoding="utf-8", errors="replace",
    )  # fmt: skip
    try:
        while True:
            try:
                # Called again after a slice has passed, it goes on reading and loses nothing.
                output, _ = child.communicate(timeout=limit.slice_s())
                return Finished(child.returncode, output)
            except subprocess.TimeoutExpired as expired:
                if limit.over():
                    partial = expired.output or b""
                    text = partial.decode("utf-8", "replace") if isinstance(partial, bytes) else partial
                    return Finished(None, text)
    finally:
        kill_group(child)


def kill_group(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill a child that leads its own session together with everything it started, and reap it."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def minimal_environment(private: Path, path: Sequence[str] = ()) -> dict[str, str]:
    """An environment that holds nothing of the user's but what is needed to load shared libraries.

    Triton and the compiler both read options from the environment, so what a shell happens to export must not change a
    verdict. Temporary files go to `private`.
    """
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {
        **kept,
        "PATH": os.pathsep.join([*path, "/usr/bin", "/bin"]),
        "HOME": str(private),
        "TMPDIR": str(private),
        "TRITON_CACHE_DIR": str(private / "triton"),
        "TRITON_DISABLE_LINE_INFO": "0",  # Triton-Ascend leaves source lines out unless told not to
        "LC_ALL": "C",
    }

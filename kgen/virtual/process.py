"""Child processes that can't outlive their time or leave grandchildren behind."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_OUTPUT = 64 << 20  # bytes; a compiler that prints more will not end
_KEPT = 20_000  # characters of such an output
_CHUNK = 1 << 16
_LOOK_EVERY_S = 0.2  # how soon a cancelled wait ends
_CLOSED_S = 0.01  # how soon an end is seen after the output was closed


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
    """Run without a shell in a process group of its own, killed whole at the limit, at its end, when it prints without
    bound, or when we are interrupted."""
    child = subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(env),
        cwd=cwd, start_new_session=True,
    )  # fmt: skip
    try:
        output, ended = _read(child, limit)
    finally:
        kill_group(child)
    text = output.decode("utf-8", "replace")
    if len(output) > MOST_OUTPUT:
        return Finished(1, f"{text[:_KEPT]}\nerror: stopped after it had printed {MOST_OUTPUT >> 20} MiB")
    return Finished(child.returncode if ended else None, text)


def _read(child: subprocess.Popen[bytes], limit: Limit) -> tuple[bytes, bool]:
    """What a child prints until it has ended, and whether it has. What it leaves running may hold its output open: that
    isn't waited for."""
    assert child.stdout is not None
    chunks: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while not limit.over() and size <= MOST_OUTPUT:
            gone = _has_ended(child)  # looked at first, so that what was printed before the end is read
            if selector.get_map() and selector.select(0 if gone else limit.slice_s()):
                chunk = os.read(child.stdout.fileno(), _CHUNK)
                chunks.append(chunk)
                size += len(chunk)
                if not chunk:
                    selector.unregister(child.stdout)
            elif gone:
                return b"".join(chunks), True
            elif not selector.get_map():
                time.sleep(min(_CLOSED_S, limit.slice_s()))
    return b"".join(chunks), False


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended; it isn't reaped, so that its number still names its process group."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_group(child: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Kill a child that leads its own session together with everything it started, and reap it."""
    if child.returncode is None:
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

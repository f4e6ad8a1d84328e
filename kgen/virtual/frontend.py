"""One front-end worker process, seen from kgen's side: start, ask, give up on time."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kgen.errors import KgenError
from kgen.virtual.process import Limit, kill_group, minimal_environment

WORKER = Path(__file__).with_name("worker.py")
_START_LIMIT_S = 120.0  # the first import of triton on a cold disk reads some 500 MB
_CHUNK_BYTES = 1 << 16


class WorkerTimeoutError(Exception):
    """The worker ran past the limit of a request and was killed."""


class WorkerDiedError(Exception):
    """The worker ended while it had a request; the text says how."""


@dataclass(frozen=True)
class Lowered:
    """A reply: `linalg` is None when the front end refused, and then `error` (one line) and `detail` say why."""

    linalg: str | None
    args: tuple[str, ...] = ()
    error: str = ""
    detail: str = ""


class FrontEnd:
    """A worker that starts at the first request and again after it was killed. One request at a time."""

    def __init__(self, python: Path, private: Path) -> None:
        self._python = python
        self._private = private
        self._child: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._pending = b""

    def start(self) -> None:
        """Start the worker unless it runs, and wait until it is ready."""
        self._start()

    def lower(self, request: Mapping[str, Any], limit: Limit) -> Lowered:
        """Ask for the linalg text of one kernel."""
        child = self._start()
        self._forget_output()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(dict(request)).encode() + b"\n")
            child.stdin.flush()
        except OSError:
            raise self._died() from None
        reply = self._read(limit)
        if "linalg" in reply:
            return Lowered(reply["linalg"], tuple(reply["args"]))
        printed = self._output()
        detail = reply["detail"] + (f"\n\n--- printed by the front end\n{printed}" if printed.strip() else "")
        return Lowered(None, error=reply["error"], detail=detail)

    def close(self) -> None:
        """End the worker."""
        if self._child is not None:
            kill_group(self._child)
            self._child = None
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None
        self._pending = b""

    def _start(self) -> subprocess.Popen[bytes]:
        """The running worker, started if need be."""
        if self._child is not None and self._child.poll() is None:
            return self._child
        self.close()  # one that died while idle is replaced without blaming the next kernel
        # Opened for append: the worker then writes at the end even after the file was emptied for the next request.
        self._stderr = tempfile.TemporaryFile(mode="a+b", buffering=0, dir=self._private)  # noqa: SIM115
        try:
            self._child = subprocess.Popen(
                [str(self._python), "-I", str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._stderr, env=minimal_environment(self._private), cwd=self._private, start_new_session=True,
            )  # fmt: skip
            self._read(Limit(_START_LIMIT_S))
        except (OSError, WorkerDiedError, WorkerTimeoutError) as error:
            self.close()
            raise KgenError(
                f"the tool chain's front end does not start: {_last_line(str(error))}",
                code="toolchain-broken",
                hint="run `kgen doctor`, then `kgen doctor --fix` to make the environment anew",
            ) from error
        return self._child

    def _read(self, limit: Limit) -> dict[str, Any]:
        """The next reply line, or an exception once the limit passed or the worker ended."""
        child = self._child
        assert child is not None and child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(limit.slice_s()):
                    if limit.over():
                        self.close()
                        raise WorkerTimeoutError(f"no answer within {limit.seconds:g} s")
                    continue
                chunk = os.read(child.stdout.fileno(), _CHUNK_BYTES)
                if not chunk:
                    raise self._died()
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _died(self) -> WorkerDiedError:
        """The error for a worker that is gone, with what it last printed."""
        assert self._child is not None
        code = self._child.wait()
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        printed = self._output()
        self.close()
        return WorkerDiedError(f"{how}\n{printed}".strip())

    def _forget_output(self) -> None:
        """Drop what earlier requests printed."""
        if self._stderr is not None:
            self._stderr.truncate(0)

    def _output(self) -> str:
        """What the worker and its children printed since the request began."""
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")


def _last_line(text: str) -> str:
    """The last line that isn't empty; for a traceback that is the exception itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"

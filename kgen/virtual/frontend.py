"""One front-end worker process, seen from kgen's side: start, ask, give up on time."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from kgen.errors import KgenError
from kgen.virtual.process import MOST_OUTPUT, Limit, kill_group, minimal_environment

WORKER = Path(__file__).with_name("worker.py")
_START_LIMIT_S = 120.0  # the first import of triton on a cold disk reads some 500 MB
_CHUNK_BYTES = 1 << 16
_END_LIMIT_S = 2.0  # from the end of its output to the end of the worker
_SHOWN = 200  # characters of a reply that isn't one


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

    def start(self) -> None:
        """Start the worker unless it runs, and wait until it is ready."""
        self._start()

    def lower(self, request: Mapping[str, Any], limit: Limit) -> Lowered:
        """Ask for the linalg text of one kernel."""
        self._start()
        self._forget_output()
        self._write(json.dumps(dict(request)).encode() + b"\n", limit)
        reply = self._read(limit)
        lowered = _lowered(reply)
        if lowered is None:
            raise self._unknown(reply)
        printed = self._output() if lowered.linalg is None else ""
        if printed.strip():
            return replace(lowered, detail=f"{lowered.detail}\n\n--- printed by the front end\n{printed}")
        return lowered

    def close(self) -> None:
        """End the worker."""
        if self._child is not None:
            kill_group(self._child)
            self._child = None
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

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
            assert self._child.stdin is not None
            os.set_blocking(self._child.stdin.fileno(), False)
            hello = self._read(Limit(_START_LIMIT_S))
            if "ready" not in hello:
                raise self._unknown(hello)
        except (OSError, WorkerDiedError, WorkerTimeoutError) as error:
            self.close()
            raise KgenError(
                f"the tool chain's front end does not start: {_last_line(str(error))}",
                code="toolchain-broken",
                hint="run `kgen doctor`, then `kgen doctor --fix` to make the environment anew",
            ) from error
        return self._child

    def _write(self, data: bytes, limit: Limit) -> None:
        """Send a request; a worker that doesn't take it is one that doesn't answer."""
        child = self._child
        assert child is not None and child.stdin is not None
        left = memoryview(data)
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdin, selectors.EVENT_WRITE)
            while left:
                self._refuse_late(limit)
                if selector.select(limit.slice_s()):
                    try:
                        left = left[os.write(child.stdin.fileno(), left) :]
                    except OSError:
                        raise self._died() from None

    def _read(self, limit: Limit) -> dict[str, Any]:
        """The next reply line, or an exception once the limit passed or the worker ended."""
        child = self._child
        assert child is not None and child.stdout is not None
        read = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while b"\n" not in read[-_CHUNK_BYTES:]:
                self._refuse_late(limit)
                if len(read) > MOST_OUTPUT:
                    self.close()
                    raise WorkerDiedError(f"printed more than {MOST_OUTPUT >> 20} MiB")
                if selector.select(limit.slice_s()):
                    chunk = os.read(child.stdout.fileno(), _CHUNK_BYTES)
                    if not chunk:
                        raise self._died()
                    read += chunk
        return self._object(bytes(read))

    def _refuse_late(self, limit: Limit) -> None:
        """End the worker once its limit has passed."""
        if limit.over():
            self.close()
            raise WorkerTimeoutError(f"no answer within {limit.seconds:g} s")

    def _object(self, line: bytes) -> dict[str, Any]:
        """A line as a JSON object."""
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            raise self._unknown(line)
        return reply

    def _unknown(self, reply: object) -> WorkerDiedError:
        """The error for a reply that isn't one; what comes after it could be taken for another request's."""
        self.close()
        return WorkerDiedError(f"gave a reply that kgen does not know: {str(reply)[:_SHOWN]}")

    def _died(self) -> WorkerDiedError:
        """The error for a worker that is gone, with what it last printed."""
        assert self._child is not None
        try:
            code = self._child.wait(timeout=_END_LIMIT_S)
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            how = "closed its output and went on"
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


def _lowered(reply: Mapping[str, Any]) -> Lowered | None:
    """A reply in kgen's words, if it is one: what is sent has no field of another type."""
    linalg, args, error, detail = (reply.get(name) for name in ("linalg", "args", "error", "detail"))
    if isinstance(linalg, str) and isinstance(args, list) and all(isinstance(arg, str) for arg in args):
        return Lowered(linalg, tuple(args))
    if isinstance(error, str) and isinstance(detail, str):
        return Lowered(None, error=error, detail=detail)
    return None


def _last_line(text: str) -> str:
    """The last line that isn't empty; for a traceback that is the exception itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"

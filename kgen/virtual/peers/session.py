"""The capture process, seen from kgen's side: start it in the peers' environment, ask, give up on time."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from kgen.errors import KgenError
from kgen.virtual.peers.environment import find_peers
from kgen.virtual.process import Limit, kill_group, minimal_environment

if TYPE_CHECKING:
    from kgen.spec.targets import Target

SCRIPT = Path(__file__).with_name("capture.py")
_START_LIMIT_S = 300.0  # torch from a cold disk
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class CapturedArgument:
    """A run-time argument: a tensor by its element type, its elements and, for integers, their values; or a number."""

    name: str
    kind: str  # tensor, int, float
    element: str = ""
    count: int = 0
    values: tuple[int, ...] | None = None
    value: float = 0


@dataclass(frozen=True)
class CapturedLaunch:
    """One launch as the host program would have made it."""

    kernel: str
    wrapper: str  # the host function that launched it
    grid: tuple[int, int, int]
    arguments: tuple[CapturedArgument, ...]
    options: dict[str, Any]
    constants: dict[str, str]
    config: str | None  # of an autotuned kernel: the one that was taken
    linalg: str | None  # None where the front end refused it
    lower_error: str = ""


@dataclass(frozen=True)
class Captured:
    """All launches of a call, in order, and the torch operations between them."""

    launches: tuple[CapturedLaunch, ...]
    torch_ops: int


class Capture:
    """A capture process; a context manager. `python` None finds the peers' environment."""

    def __init__(self, python: Path | None = None, limit_s: float = 600.0) -> None:
        self._python = python
        self._limit_s = limit_s
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._stderr: IO[bytes] | None = None
        self._pending = b""

    def __enter__(self) -> Capture:
        python = self._python or find_peers()
        self._folder = tempfile.TemporaryDirectory(prefix="kgen-peers-")
        private = Path(self._folder.name)
        self._stderr = open(private / "stderr", "w+b", buffering=0)
        try:
            self._child = subprocess.Popen(
                [str(python), "-I", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr,
                env={**minimal_environment(private), "FLA_DISABLE_BACKEND_WARNING": "1"}, cwd=private,
                start_new_session=True,
            )  # fmt: skip
            self._read(_START_LIMIT_S)
        except OSError as error:
            self._close()
            raise _broken(f"{python} does not start: {error.strerror}") from error
        except KgenError:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def ask(self, request: Mapping[str, Any]) -> Captured:
        """Capture one call. Raises `KgenError` when the host program fails or the process does."""
        child = self._child
        if child is None or child.stdin is None:
            raise _broken("it isn't running")
        try:
            child.stdin.write(json.dumps(dict(request)).encode() + b"\n")
            child.stdin.flush()
        except OSError:
            raise self._died() from None
        reply = self._read(self._limit_s)
        if "error" in reply:
            raise KgenError(
                f"the captured program failed: {str(reply['error'])[:400]}",
                code="capture-failed",
                hint="its arguments may be outside what it supports; the shapes stand in the request",
            )
        try:
            return _captured(reply)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _broken(f"its answer lacks what a capture has ({error!r})") from error

    def _read(self, limit_s: float) -> dict[str, Any]:
        child = self._child
        assert child is not None and child.stdout is not None
        limit = Limit(limit_s)
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(limit.slice_s()):
                    if limit.over():
                        self._close()
                        raise KgenError(
                            f"the capture gave no answer within {limit_s:g} s", code="capture-timeout",
                            hint="capture a smaller shape",
                        )  # fmt: skip
                    continue
                chunk = os.read(child.stdout.fileno(), _CHUNK_BYTES)
                if not chunk:
                    raise self._died()
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise _broken(f"it answered {line[:60]!r}")
        return reply

    def _died(self) -> KgenError:
        printed = ""
        if self._stderr is not None:
            self._stderr.seek(0)
            lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
            printed = lines[-1][:300] if lines else ""
        self._close()
        return _broken(f"the capture ended: {printed or 'it printed nothing'}")

    def _close(self) -> None:
        if self._child is not None:
            kill_group(self._child)
            self._child = None
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._pending = b""


def device_of(target: Target) -> dict[str, Any]:
    """The part of a request that says on which device the host program is to find itself."""
    if target.cores is None:
        raise KgenError(f"{target.name} has no NPU cores", code="target-cores", hint="choose an Ascend target")
    cores = {"num_aicore": target.cores.cube.value, "num_vectorcore": target.cores.vector.value}
    return {"target": target.compiler_target.value, "cores": cores}


def _broken(message: str) -> KgenError:
    return KgenError(
        f"the peers' environment: {message}", code="peers-broken", hint="`kgen doctor --peers` says what it lacks"
    )


def _captured(reply: Mapping[str, Any]) -> Captured:
    kernels = reply["kernels"]
    launches = []
    for entry in reply["launches"]:
        lowered = kernels[entry["key"]]
        launches.append(
            CapturedLaunch(
                entry["kernel"], entry["wrapper"], tuple(entry["grid"]),
                tuple(_argument(a) for a in entry["arguments"]), entry["options"], entry["constants"], entry["config"],
                lowered.get("linalg"), lowered.get("error", ""),
            )
        )  # fmt: skip
    return Captured(tuple(launches), int(reply["torch_ops"]))


def _argument(entry: Mapping[str, Any]) -> CapturedArgument:
    values = entry.get("values")
    return CapturedArgument(
        entry["name"], entry["kind"], entry.get("element", ""), entry.get("count", 0),
        tuple(values) if values is not None else None, entry.get("value", 0),
    )  # fmt: skip

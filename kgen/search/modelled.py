"""Modelled times of compiled kernels: made in processes of their own, since the model is Python; kept by inputs."""

from __future__ import annotations

import functools
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal

from pydantic import Field

import kgen.virtual
from kgen.collector import relax
from kgen.errors import KgenError
from kgen.virtual.cache import ResultCache, code_hash, content_key, from_fields
from kgen.virtual.hivm import parse_module
from kgen.virtual.launch import Launch
from kgen.virtual.timeline import Costs, Timeline, evaluate, record

_VIRTUAL = Path(kgen.virtual.__file__).parent
_PARTS = ("hivm", "machine", "timeline")
RULES = (*(f for part in _PARTS for f in (_VIRTUAL / part).glob("*.py")), _VIRTUAL / "templates.py")
Micros = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Modelled:
    """What a row says of a launch's time. `us` None: no time can be told, and `problem` or `unknown` says why."""

    us: Micros | None
    bound: Literal["", "core", "hbm", "l2"] = ""
    core_us: Micros | None = None
    hbm_us: Micros | None = None
    l2_us: Micros | None = None
    unknown: dict[str, Annotated[int, Field(strict=True, gt=0)]] | None = None
    warnings: tuple[str, ...] = ()
    problem: str = ""

    def __post_init__(self) -> None:
        if self.us is not None and (self.unknown or self.problem):
            raise ValueError("a time of what isn't known")

    @property
    def explained(self) -> bool:
        """Whether a time has what it is made of, and a missing one its reason."""
        if self.us is None:
            return bool(self.unknown or self.problem)
        return self.bound != "" and None not in (self.core_us, self.hbm_us, self.l2_us)


class Modeller:
    """A pool of processes and a store of times; a context manager. `time` may be called from many threads."""

    def __init__(self, jobs: int, cache_dir: Path | None = None) -> None:
        """`jobs` launches at a time; no `cache_dir`, no cache."""
        self._jobs = jobs
        self._cache = ResultCache(cache_dir)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Modeller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def remembered(self, compiled: str, launch: Launch, costs: Costs) -> Modelled | None:
        """The time of a launch that was modelled before; `compiled` is the key of its compile."""
        found = from_fields(Modelled, self._cache.get(_key(compiled, launch, costs)))
        return found if found is not None and found.explained else None

    def time(self, compiled: str, text: str, launch: Launch, costs: Costs) -> Modelled:
        """Model a launch of the final IR `text` and remember its time."""
        return self.times(compiled, text, launch, [costs])[0]

    def times(self, compiled: str, text: str, launch: Launch, costs: Sequence[Costs]) -> list[Modelled]:
        """The same with several sets of constants: the launch is recorded once and priced with each."""
        try:
            with _no_interrupt():  # a process that starts now inherits it, before it can ignore the signal itself
                waiting = self._start().submit(model_text, text, launch, list(costs))
            found, lasting = waiting.result()
        except BrokenProcessPool as error:
            raise KgenError(
                "a process that models times ended: the machine may be out of memory",
                code="model-died",
                hint="model a smaller shape, or fewer at once with --jobs",
            ) from error
        for each, modelled in zip(costs, found, strict=True) if lasting else ():
            self._cache.put(_key(compiled, launch, each), asdict(modelled))
        return found

    def _start(self) -> ProcessPoolExecutor:
        """Processes only where something is to be modelled. They are spawned, since threads that compile are
        running; an interrupt is ours to handle, and ends them through `__exit__`."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._jobs, multiprocessing.get_context("spawn"), initializer=_begin,
            )  # fmt: skip
        return self._pool


def _begin() -> None:
    """What a process that models times does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    relax()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Keep SIGINT from this thread and from what it starts. The tracker of multiprocessing lets it in again where it
    starts itself, so it is started before."""
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def model_text(text: str, launch: Launch, costs: Sequence[Costs]) -> tuple[list[Modelled], bool]:
    """Model one launch with each set of constants; what the kernel's IR is to blame for becomes the row's problem. With
    it, whether that would be the same next time."""
    try:
        recording = record(parse_module(text), launch, costs[0])
        return [summary(evaluate(recording, each)) for each in costs], True
    except KgenError as error:
        return [Modelled(None, problem=error.message)] * len(costs), True
    except (RecursionError, MemoryError) as error:
        return [Modelled(None, problem=f"the model ran out of room: {type(error).__name__}")] * len(costs), False
    except Exception as error:  # nobody knows what another compiler's IR may hold: no time, and the other rows stay
        told = f"the model failed, which is a bug of kgen: {type(error).__name__}: {error}"
        return [Modelled(None, problem=told[:300])] * len(costs), False


def summary(timeline: Timeline) -> Modelled:
    """A timeline as a row has it."""
    return Modelled(
        timeline.us, timeline.bound, timeline.core_us, timeline.hbm_us, timeline.l2_us, timeline.unknown,
        timeline.warnings, "; ".join(f"what is done hangs on an integer ({what})" for what in timeline.undecided),
    )  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _launch_text(launch: Launch) -> str:
    arguments = [
        [a.name, a.element, a.count, list(a.values) if a.values is not None else None] if not isinstance(a, int | float)
        else a
        for a in launch.arguments
    ]  # fmt: skip
    return repr((launch.grid, arguments))


@functools.cache
def _rules() -> str:
    """A hash of the code that makes a time of an IR: remembered times are of these rules."""
    return code_hash(RULES)


@functools.cache
def _costs_parts(costs: Costs) -> dict[str, Any]:
    return asdict(costs)


def _key(compiled: str, launch: Launch, costs: Costs) -> str:
    return content_key(
        {"model": _rules(), "compiled": compiled, "launch": _launch_text(launch), "costs": _costs_parts(costs)}
    )

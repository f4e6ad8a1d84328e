"""What the compiler's output means. The exit code alone says nothing: it is 1 whenever `hivmc` fails or is missing."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Literal

from kgen.errors import KgenError
from kgen.virtual.process import Finished

Verdict = Literal["fits", "degraded", "overflows", "error", "timeout"]

_RETRIED = re.compile(r"\[NOTE\] (\w+) overflow detected")
_OVERFLOW = re.compile(r"(\w+) overflow, requires (\d+) bits while (\d+) bits available")
_GAVE_UP = re.compile(r"\[NOTE\] Due to \w+ [oO]verflow, automatically (.+); compilation then succeeded")
_SPACE_NAMES = {"ub": "UB", "cbuf": "L1", "cc": "L0C", "ca": "L0A", "cb": "L0B"}
_DETAIL_LIMIT = 20_000  # characters of compiler output kept with a result


@dataclass(frozen=True)
class Reading:
    """Verdict with a line for people and, where the compiler named it, the need in bytes."""

    verdict: Verdict
    message: str
    required_bytes: int | None = None


def read_outcome(finished: Finished, reached_hivmc: bool, timeout_s: float) -> Reading:
    """The verdict on one run of `bishengir-compile`; `reached_hivmc` says whether it got to its last step."""
    if finished.returncode is None:
        return Reading("timeout", f"no result within {timeout_s:g} s")
    refuse_unusable(finished)
    overflows = _OVERFLOW.findall(finished.output)
    # Later attempts ask for less (no double buffering), so the last figure is what the kernel can't do without.
    required = -(-int(overflows[-1][1]) // 8) if overflows else None
    if reached_hivmc and finished.returncode == 0:
        # The compiler for the 950 family retries without the note but leaves the error of the first attempt.
        if _RETRIED.search(finished.output) or overflows:
            return Reading("degraded", _degraded_message(finished.output), required)
        return Reading("fits", "")
    if overflows and not reached_hivmc:
        space, need, have = overflows[-1]
        name = _SPACE_NAMES.get(space.lower(), space)
        return Reading(
            "overflows", f"{name} overflow: needs {int(need) // 8} bytes, {int(have) // 8} available", required
        )
    return Reading("error", _error_message(finished))


def overflowed_space(output: str) -> str | None:
    """The compiler's name of the space that overflowed last (`ub`, `cbuf`, `cc`)."""
    found = _OVERFLOW.findall(output)
    return str(found[-1][0]).lower() if found else None


def refuse_unusable(finished: Finished) -> None:
    """Raise when the run says something about the tool chain or the target and nothing about the kernel."""
    output = finished.output
    if finished.returncode == 127 or "error while loading shared libraries" in output or "GLIBC_" in output:
        raise KgenError(
            f"the compiler does not start here: {_first_line(output)}",
            code="toolchain-broken",
            hint="run `kgen doctor`; the wheels need a Linux with glibc on x86-64 or aarch64",
        )
    if "Cannot find option named" in output:
        raise KgenError(
            f"the compiler refuses an option: {_first_line(output)}",
            code="compiler-option",
            hint="check the target's name and the extra options; `bishengir-compile --help` lists both",
        )
    if "Unknown command line argument" in output:
        raise KgenError(
            f"the compiler does not know an option: {_first_line(output)}",
            code="compiler-option",
            hint="another version of the compiler is in use; `kgen doctor` shows which",
        )


def bounded(text: str) -> str:
    """The text, or its head and tail where it is too long to keep."""
    if len(text) <= _DETAIL_LIMIT:
        return text
    half = _DETAIL_LIMIT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _degraded_message(output: str) -> str:
    """What was given up to make the kernel fit."""
    given_up = _GAVE_UP.search(output)
    spaces = sorted({_SPACE_NAMES.get(name.lower(), name) for name in _RETRIED.findall(output)})
    what = given_up[1] if given_up else "retried with less"
    return f"{' and '.join(spaces) or 'on-chip memory'} overflowed at first: {what}"


def _error_message(finished: Finished) -> str:
    """The line that names the cause: the compiler first says only that a pipeline failed."""
    code = finished.returncode or 0
    lines = [line.partition("error:")[2].strip() for line in finished.output.splitlines() if "error:" in line]
    causes = [line for line in lines if line and not line.startswith("Failed to run")]
    if code < 0:
        name = signal.Signals(-code).name
        return f"the compiler crashed ({name}): {(causes or [_first_line(finished.output)])[0]}"
    if causes or lines:
        return (causes or lines)[0]
    return f"the compiler ended with exit code {code}: {_first_line(finished.output)}"


def _first_line(text: str) -> str:
    """The first line that isn't empty."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "it printed nothing")

"""Make kgen's own tool chain environment: a virtual environment with the pinned wheels, in kgen's cache folder.

It is made in place, since an environment's scripts hold its path, and counts only once a marker file is written last.
A lock keeps two kgens from making it at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kgen.errors import KgenError
from kgen.virtual.process import kill_group
from kgen.virtual.toolchain import (
    COMPLETE_MARKER,
    PINNED,
    PYTHON_VERSIONS,
    Toolchain,
    find_toolchain,
    is_complete,
    own_environment,
)

Report = Callable[[str], None]

_NEEDED_BYTES = 1_500_000_000  # 720 MB installed, the downloads beside it while pip works, and some room
_CHECK_LIMIT_S = 60.0
_NETWORK_SIGNS = (
    "Could not fetch URL",
    "Connection",
    "Temporary failure in name resolution",
    "Max retries",
    "timed out",
)


def create_environment(report: Report | None = None, *, environ: Mapping[str, str] | None = None) -> Toolchain:
    """Make the environment unless it is complete, and return its tool chain. `report` gets a line of text per step."""
    variables = os.environ if environ is None else environ
    say: Report = report or (lambda _: None)
    folder = own_environment(variables)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(".lock"), say):
            if not is_complete(folder):
                _make(folder, variables, say)
    except OSError as error:
        raise KgenError(
            f"cannot write {folder.parent}: {error.strerror or error}",
            code="toolchain-unwritable",
            hint="set KGEN_HOME to a folder that you may write to, with 1.5 GB free",
        ) from error
    own = {name: value for name, value in variables.items() if name != "KGEN_TOOLCHAIN"}
    return find_toolchain(environ=own)


@contextlib.contextmanager
def locked(path: Path, say: Report) -> Iterator[None]:
    """Hold the lock file; the kernel drops the lock if we are killed."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another kgen that is making the environment")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path, variables: Mapping[str, str], say: Report) -> None:
    """Create, fill, check and mark the environment; nothing is left of one that fails."""
    python = base_interpreter(variables)
    free = shutil.disk_usage(folder.parent).free
    if free < _NEEDED_BYTES:
        raise KgenError(
            f"{folder.parent} has {free // 1_000_000} MB free and the tool chain needs {_NEEDED_BYTES // 1_000_000} MB",
            code="disk-full",
            hint="free some space, or set KGEN_HOME to a folder on another disk",
        )
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted attempt left
    try:
        say(f"creating an environment with {python}")
        create_venv(python, folder, variables)
        say(f"installing {', '.join(_requirements())} (about 220 MB to download)")
        install(folder, _requirements(), variables, say)
        versions = _checked_versions(folder)
        (folder / COMPLETE_MARKER).write_text(json.dumps(versions, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    say(f"the tool chain is ready in {folder}")


def base_interpreter(variables: Mapping[str, str]) -> Path:
    """A Python 3.11 or 3.10 to make the environment with: kgen's own if it is one, else from PATH."""
    path = variables.get("PATH", "")
    names = [f"python{version}" for version in PYTHON_VERSIONS] + ["python3", "python"]
    found = [Path(sys.executable), *(Path(hit) for name in names if (hit := shutil.which(name, path=path)))]
    versions = {candidate: _python_version(candidate) for candidate in dict.fromkeys(found)}
    for wanted in PYTHON_VERSIONS:
        for candidate, version in versions.items():
            if version == wanted:
                return candidate
    raise KgenError(
        f"the tool chain needs Python {' or '.join(PYTHON_VERSIONS)}, and none is on PATH",
        code="python-missing",
        hint="install one (Debian and Ubuntu: `apt install python3.11 python3.11-venv`; or `uv python install 3.11`), "
        "or set KGEN_TOOLCHAIN to an environment that has triton-ascend",
    )


def _python_version(python: Path) -> str | None:
    """`3.11`, or None for something that doesn't run (a version manager's shim without that version)."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [str(python), "-I", "-c", code], capture_output=True, text=True, timeout=_CHECK_LIMIT_S, check=True
        )
        return done.stdout.strip()
    return None


def create_venv(python: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """The empty environment, with pip."""
    returncode, output = _stream([str(python), "-I", "-m", "venv", str(folder)], variables, lambda _: None)
    if returncode == 0:
        return
    no_pip = "ensurepip" in output
    raise KgenError(
        f"{python} cannot make an environment: {_last_line(output)}",
        code="toolchain-install",
        hint="install its venv module (Debian and Ubuntu: `apt install python3-venv`) and run `kgen doctor --fix` again"
        if no_pip
        else "see the message above; KGEN_HOME chooses another folder, KGEN_TOOLCHAIN another environment",
    )


def install(
    folder: Path, requirements: Sequence[str], variables: Mapping[str, str], say: Report, options: Sequence[str] = ()
) -> None:
    """Install wheels with the user's own pip settings (index, proxy)."""
    command = [
        str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
        "--only-binary=:all:", "--progress-bar=off", *options, *requirements,
    ]  # fmt: skip
    returncode, output = _stream(command, variables, say)
    if returncode == 0:
        return
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR:")]
    message = f"pip failed: {(errors or [_last_line(output)])[-1]}"
    if "No space left" in output:
        hint = "free some space, or set KGEN_HOME (and TMPDIR) to a folder on another disk"
        raise KgenError(message, code="disk-full", hint=hint)
    if "No matching distribution" in output and not any(sign in output for sign in _NETWORK_SIGNS):
        hint = "the wheels exist for Linux with glibc on x86-64 and aarch64; check pip's index"
    else:
        hint = (
            "check the network and pip's index or proxy settings, then run `kgen doctor --fix` again; "
            "or set KGEN_TOOLCHAIN to an environment made elsewhere"
        )
    raise KgenError(message, code="toolchain-install", hint=hint)


def _checked_versions(folder: Path) -> dict[str, str]:
    """Versions in a filled environment, after its front end was imported once."""
    python = str(folder / "bin" / "python")
    code = (
        "import importlib.metadata as m, json, sys, triton.backends.ascend.compiler, ascendnpuir\n"
        "print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    )
    try:
        command = [python, "-I", "-c", code, *PINNED]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_LIMIT_S * 2, check=False)
    except subprocess.TimeoutExpired as error:
        raise KgenError("the installed front end hangs", code="toolchain-broken", hint="run `kgen doctor`") from error
    if done.returncode != 0:
        raise KgenError(
            f"the installed front end does not import: {_last_line(done.stderr)}",
            code="toolchain-broken",
            hint="the wheels need Linux with glibc on x86-64 or aarch64 and Python 3.10 or 3.11",
        )
    versions: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return versions


def _requirements() -> list[str]:
    """`name==version` of the pinned list."""
    return [f"{name}=={version}" for name, version in PINNED.items()]


def _stream(command: list[str], variables: Mapping[str, str], say: Report) -> tuple[int, str]:
    """Run a command of unknown length, passing each line on as it comes; killed whole if we are interrupted."""
    # A PYTHONPATH or PYTHONHOME of the caller's is for another interpreter.
    clean = {name: value for name, value in variables.items() if not name.startswith("PYTHON")}
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    lines: list[str] = []
    try:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            say(line.strip())
        return child.wait(), "".join(lines)
    finally:
        kill_group(child)


def _last_line(text: str) -> str:
    """The last line that isn't empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"

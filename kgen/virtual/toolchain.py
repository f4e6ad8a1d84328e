"""Where the Ascend tool chain is: an interpreter that has triton-ascend, and the compilers it is used with.

Looked for in this order: what the caller or `KGEN_TOOLCHAIN` names (an interpreter, or an environment's folder), then
kgen's own environment (`kgen doctor --fix` makes it). CANN's compiler is used only when asked for by name, since its
verdicts depend on the machine. A setting that does not work is an error: falling back would change verdicts silently.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kgen.errors import KgenError
from kgen.storage import home_folder

PINNED: Mapping[str, str] = {"triton-ascend": "3.2.0", "ascendnpu-ir": "1.2.0", "pybind11": "3.1.0"}
PYTHON_VERSIONS = ("3.11", "3.10")  # what the wheels exist for, best first
COMPLETE_MARKER = ".complete"
_PROBE_LIMIT_S = 60.0
_FIX_HINT = (
    "run `kgen doctor --fix` to make the environment, or set KGEN_TOOLCHAIN to a Python 3.10 or 3.11 that has it"
)

# Metadata only: importing triton here would make discovery slow. One JSON line.
_PROBE = """
import importlib.metadata as m, importlib.util as u, json, os, platform, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
spec = u.find_spec("ascendnpuir")
print(json.dumps({"python": platform.python_version(), "packages": {n: version(n) for n in sys.argv[1:]},
                  "bin": os.path.join(os.path.dirname(spec.origin), "bin") if spec and spec.origin else None}))
"""

Source = Literal["setting", "own", "cann"]


@dataclass(frozen=True)
class Toolchain:
    """A tool chain that was found. `versions` names every part that can change a verdict."""

    python: Path
    bishengir: Path  # for A2 and A3
    bishengir_a5: Path | None  # for the 950 family, where present
    versions: Mapping[str, str]
    source: Source

    def mismatches(self) -> list[str]:
        """Parts whose version is not the pinned one, in words."""
        return [
            f"{name} is {self.versions[name]}, kgen's recorded verdicts were made with {wanted}"
            for name, wanted in PINNED.items()
            if name in self.versions and self.versions[name] != wanted
        ]


def own_environment(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of kgen's own environment; another pinned list gets another folder."""
    text = " ".join(f"{name}=={version}" for name, version in sorted(PINNED.items()))
    return home_folder(environ) / f"toolchain-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def is_complete(environment: Path) -> bool:
    """Whether the environment was made to the end; an interrupted one lacks the marker."""
    return (environment / COMPLETE_MARKER).is_file()


def find_toolchain(toolchain: str = "auto", *, environ: Mapping[str, str] | None = None) -> Toolchain:
    """Find a tool chain: `auto`, `cann`, or the path of an interpreter or environment."""
    variables = os.environ if environ is None else environ
    if toolchain == "cann":
        return _cann(variables)
    setting = toolchain if toolchain != "auto" else variables.get("KGEN_TOOLCHAIN", "")
    if setting:
        named_by = "the tool chain setting" if toolchain != "auto" else "KGEN_TOOLCHAIN"
        return _from_wheels(_interpreter(Path(setting).expanduser(), named_by), "setting")
    own = own_environment(variables)
    if is_complete(own):
        return _from_wheels(own / "bin" / "python", "own")
    raise KgenError("no Ascend tool chain was found", code="toolchain-missing", hint=_FIX_HINT)


def _interpreter(path: Path, named_by: str) -> Path:
    """The interpreter that a path means: itself, or `bin/python` of an environment."""
    candidate = path / "bin" / "python" if path.is_dir() else path
    # Not resolved: an environment's `python` is a link, and only its own path finds the environment's packages.
    if not candidate.is_file() or not os.access(candidate, os.X_OK):
        raise KgenError(
            f"{named_by} is {str(path)!r}, where there is no interpreter",
            code="toolchain-missing",
            hint="it must be a Python 3.10 or 3.11 with triton-ascend, or the folder of such an environment",
        )
    return candidate.absolute()


def _from_wheels(python: Path, source: Source) -> Toolchain:
    """The tool chain whose front end and compiler are both wheels of one environment."""
    found = probe(python)
    packages = found["packages"]
    missing = [name for name in PINNED if packages.get(name) is None]
    if missing:
        raise _lacking(python, missing)
    if found["bin"] is None:
        raise _lacking(python, ["ascendnpu-ir"])
    folder = Path(found["bin"])
    compiler = folder / "bishengir-compile"
    if not os.access(compiler, os.X_OK):
        raise KgenError(
            f"the compiler {compiler.name} of {python} is missing or not executable",
            code="toolchain-broken",
            hint=_FIX_HINT,
        )
    a5 = folder / "bishengir-compile-a5"
    versions = {name: str(packages[name]) for name in PINNED} | {"python": str(found["python"])}
    return Toolchain(python, compiler, a5 if os.access(a5, os.X_OK) else None, versions, source)


def _cann(variables: Mapping[str, str]) -> Toolchain:
    """CANN's compiler on PATH, with the front end of `KGEN_TOOLCHAIN` or of this interpreter."""
    on_path = shutil.which("bishengir-compile", path=variables.get("PATH", ""))
    if on_path is None:
        raise KgenError(
            "there is no bishengir-compile on PATH",
            code="toolchain-missing",
            hint="source CANN's set_env.sh first, or drop `--toolchain cann` to use kgen's own compiler",
        )
    setting = variables.get("KGEN_TOOLCHAIN", "")
    python = _interpreter(Path(setting).expanduser(), "KGEN_TOOLCHAIN") if setting else Path(sys.executable)
    found = probe(python)
    if found["packages"].get("triton-ascend") is None:
        raise _lacking(python, ["triton-ascend"])
    a5 = shutil.which("bishengir-compile-a5", path=variables.get("PATH", ""))
    versions = {
        "triton-ascend": str(found["packages"]["triton-ascend"]),
        "bishengir-compile": _compiler_version(Path(on_path)),
        "python": str(found["python"]),
    }
    return Toolchain(python, Path(on_path), Path(a5) if a5 else None, versions, "cann")


def probe(python: Path) -> dict[str, Any]:
    """Versions in another interpreter: `python`, `packages` (None where absent) and the compiler's `bin` folder."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _PROBE, *PINNED],
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise KgenError(
            f"the interpreter {python} does not run: {error}", code="toolchain-broken", hint=_FIX_HINT
        ) from error
    return found


def _compiler_version(compiler: Path) -> str:
    """`1.2.0 8796a8ac1508`: version and commit from the compiler's own answer, without the path it was built in."""
    try:
        done = subprocess.run(
            [str(compiler), "--version"], capture_output=True, text=True, timeout=_PROBE_LIMIT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise KgenError(
            f"{compiler} does not run: {error}", code="toolchain-broken", hint="check CANN's setup"
        ) from error
    version = re.search(r"bishengir-compile (\S+)(?: \(.*?\b([0-9a-f]{12})\b.*?\))?", done.stdout)
    return " ".join(part for part in version.groups() if part) if version else "unknown"


def _lacking(python: Path, names: list[str]) -> KgenError:
    """The error for an interpreter without some of the packages."""
    return KgenError(f"{python} lacks {', '.join(names)}", code="toolchain-missing", hint=_FIX_HINT)

"""The peers' environment: the tool chain's wheels with torch and fla-core, for benches only."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kgen.errors import KgenError
from kgen.storage import home_folder
from kgen.virtual.doctor import Check
from kgen.virtual.environment import Report, base_interpreter, create_venv, install, locked
from kgen.virtual.process import Limit, minimal_environment, run_limited
from kgen.virtual.toolchain import COMPLETE_MARKER, PINNED, is_complete

VARIABLE = "KGEN_PEERS"
# Installed without their own dependencies: fla-core asks for the upstream triton, which would replace triton-ascend.
ALONE = {"fla-core": "0.6.0"}
WITH = {"torch": "2.13.0", "numpy": "<2.4", "packaging": "", "einops": ""}

# What a capture imports, by package; fla after what it needs, so that the first problem is the cause.
_IMPORTED = {"torch": "torch", "triton-ascend": "triton.backends.ascend.compiler", "fla-core": "fla"}
_PROBE = """\
import importlib, importlib.metadata, json, sys
versions, wrong = {}, []
for package, module in json.loads(sys.argv[1]).items():
    try:
        importlib.import_module(module)
        versions[package] = importlib.metadata.version(package)
    except BaseException as error:
        wrong.append(f"{package}: {error or type(error).__name__}"[:300])
print()
print(json.dumps({"versions": versions, "wrong": wrong}))
"""
_PROBE_LIMIT_S = 300.0  # torch from a cold disk


def requirements() -> tuple[list[str], list[str]]:
    """What pip installs with dependencies, and then what it installs without."""
    together = [f"{n}=={v}" for n, v in PINNED.items()]
    together += [n + (v if v.startswith("<") else f"=={v}" if v else "") for n, v in WITH.items()]
    return together, [f"{n}=={v}" for n, v in ALONE.items()]


def own_peers(environ: Mapping[str, str] | None = None) -> Path:
    """Where kgen keeps the environment; another list of packages is another folder."""
    listed = "\n".join([*requirements()[0], *requirements()[1]])
    return home_folder(environ) / f"peers-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"


def find_peers(environ: Mapping[str, str] | None = None) -> Path:
    """The Python of the peers' environment: `KGEN_PEERS`, or kgen's own."""
    variables = os.environ if environ is None else environ
    setting = variables.get(VARIABLE)
    folder = Path(setting).expanduser() if setting else own_peers(variables)
    python = folder / "bin" / "python"
    if not python.is_file() or not (setting or is_complete(folder)):
        raise KgenError(
            f"there is no peers' environment in {folder}",
            code="peers-missing",
            hint=f"make it with `kgen doctor --fix --peers`, or set {VARIABLE} to one with torch, triton-ascend and "
            "fla-core",
        )
    return python


def peers_check(environ: Mapping[str, str] | None = None) -> Check:
    """A row of `kgen doctor`: the environment is there, and what a capture imports can be imported."""
    variables = os.environ if environ is None else environ
    try:
        python = find_peers(variables)
    except KgenError as error:
        return Check("peers", False, error.message, error.hint)
    found, problems = _probe(python)
    if not problems:
        return Check("peers", True, f"{python} ({', '.join(f'{name} {version}' for name, version in found.items())})")
    together, alone = requirements()
    folder, again = python.parent.parent, "run `kgen doctor --fix --peers`"
    mend = f"remove {folder} and {again}"
    if variables.get(VARIABLE):
        mend = f"mend what {VARIABLE} names ({', '.join([*together, *alone])}), or unset it and {again}"
    return Check("peers", False, f"{python}: {'; '.join(problems)}", mend)


def _probe(python: Path) -> tuple[dict[str, str], list[str]]:
    """Versions of what a capture imports, and what is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="kgen-peers-") as private:
        command = [str(python), "-I", "-c", _PROBE, json.dumps(_IMPORTED)]
        variables = {**minimal_environment(Path(private)), "FLA_DISABLE_BACKEND_WARNING": "1"}
        try:
            done = run_limited(command, env=variables, cwd=Path(private), limit=Limit(_PROBE_LIMIT_S))
        except OSError as error:
            return {}, [f"it does not start: {error.strerror}"]
    lines = done.output.strip().splitlines() or ["it printed nothing"]
    try:
        answers = dict(json.loads(lines[-1]))
        versions, wrong = dict(answers["versions"]), list(map(str, answers["wrong"]))
    except (ValueError, TypeError, KeyError):
        return {}, [f"it could not be asked what it has: {lines[-1][:200]}"]
    wanted = {**PINNED, **ALONE}
    wrong += [
        f"{name} is {version}, benches compare with {wanted[name]}"
        for name, version in versions.items()
        if version != wanted.get(name, version)
    ]
    return versions, wrong


def create_peers(
    report: Report | None = None, *, torch_index: str | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """Make the environment unless it is complete, and return its Python. `torch_index`: one more index, with a torch
    for this machine (its own may bring gigabytes that a capture never uses)."""
    variables = os.environ if environ is None else environ
    say: Report = report or (lambda _: None)
    folder = own_peers(variables)
    together, alone = requirements()
    options = ["--extra-index-url", torch_index] if torch_index else []
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(".lock"), say):
            if not is_complete(folder):
                shutil.rmtree(folder, ignore_errors=True)  # what an interrupted attempt left
                try:
                    python = base_interpreter(variables)
                    say(f"creating the peers' environment with {python}")
                    create_venv(python, folder, variables)
                    say(f"installing {', '.join([*together, *alone])}")
                    install(folder, together, variables, say, options)
                    install(folder, alone, variables, say, ["--no-deps"])
                    (folder / COMPLETE_MARKER).write_text(json.dumps([*together, *alone]) + "\n", encoding="utf-8")
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
    except OSError as error:
        raise KgenError(
            f"cannot write {folder.parent}: {error.strerror or error}",
            code="peers-unwritable",
            hint="set KGEN_HOME to a folder that you may write to, with 3 GB free",
        ) from error
    return folder / "bin" / "python"

"""The peers' environment: the tool chain's wheels with torch and fla-core, for benches only."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from kgen.errors import KgenError
from kgen.storage import home_folder
from kgen.virtual.doctor import Check
from kgen.virtual.environment import Report, base_interpreter, create_venv, install, locked
from kgen.virtual.toolchain import COMPLETE_MARKER, PINNED, is_complete

VARIABLE = "KGEN_PEERS"
# Installed without their own dependencies: fla-core asks for the upstream triton, which would replace triton-ascend.
ALONE = {"fla-core": "0.6.0"}
WITH = {"torch": "2.13.0", "numpy": "<2.4", "packaging": "", "einops": ""}


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
    """A row of `kgen doctor`."""
    try:
        return Check("peers", True, str(find_peers(environ)))
    except KgenError as error:
        return Check("peers", False, error.message, error.hint)


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

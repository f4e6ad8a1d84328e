"""The peers' environment: the tool chain's wheels with torch and fla-core, for benches only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from kgen.errors import KgenError
from kgen.storage import home_folder
from kgen.virtual.toolchain import PINNED

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
    if not python.is_file():
        raise KgenError(
            f"there is no peers' environment in {folder}",
            code="peers-missing",
            hint=f"make it with `kgen doctor --fix --peers`, or set {VARIABLE} to one with torch, triton-ascend and "
            "fla-core",
        )
    return python

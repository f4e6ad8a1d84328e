"""Where kgen's own data is: beside the package in a checkout, inside it (`_data`) when installed from a wheel."""

from __future__ import annotations

from pathlib import Path

from kgen.errors import KgenBug

_PACKAGE = Path(__file__).resolve().parent


def templates_dir() -> Path:
    """The folder of the Jinja templates."""
    return _data("templates")


def specs_dir() -> Path:
    """The folder of the specs that kgen brings, with `programs/` and `targets/` in it."""
    return _data("specs")


def _data(name: str) -> Path:
    installed = _PACKAGE / "_data" / name
    if installed.is_dir():
        return installed
    checkout = _PACKAGE.parent / name
    # The file beside it tells a checkout from a stranger's folder that happens to lie next to an installed package.
    if checkout.is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file():
        return checkout
    raise KgenBug(f"kgen was installed without its {name} folder")

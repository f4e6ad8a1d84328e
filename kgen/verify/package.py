"""A generated package, imported from where it lies, with outputs that start as NaN."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kgen.errors import KgenError
from kgen.verify import interpreter

_numbers = itertools.count()


@dataclass(frozen=True)
class Package:
    """An imported package; `function` finds its public functions."""

    path: Path
    module: ModuleType

    def function(self, name: str) -> Callable[..., Any]:
        """A stage or the operator."""
        found = getattr(self.module, name, None)
        if not callable(found):
            raise KgenError(
                f"{self.path.name} has no function {name!r}",
                code="package-function",
                hint="run `kgen build` on the spec: the package is older than it",
            )
        return found  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def poisoned(self) -> Iterator[None]:
        """While this is open, every tensor that the package allocates uninitialised is full of NaN."""
        prefix = self.module.__name__
        owners = [m for n, m in sys.modules.items() if n.startswith(prefix) and getattr(m, "torch", None) is torch]
        for owner in owners:
            owner.torch = _Poisoner()  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for owner in owners:
                owner.torch = torch  # type: ignore[attr-defined]


class _Poisoner:
    """`torch`, except that what `empty`, `empty_like` and their kin return is poisoned."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        if not name.startswith("empty") or not callable(found):
            return found

        def poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor: torch.Tensor = found(*args, **kwargs)
            return tensor.fill_(torch.nan if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min)

        return poisoned


def load_package(path: Path) -> Package:
    """Imports the package in a folder under a name of its own, interpreted; two folders never share a module."""
    interpreter.activate()
    entry = path / "__init__.py"
    if not entry.is_file():
        raise KgenError(f"no generated package in {path}", code="package-missing", hint="run `kgen build` on the spec")
    name = f"_kgen_verified_{next(_numbers)}_{path.resolve().name}"
    found = importlib.util.spec_from_file_location(name, entry, submodule_search_locations=[str(path)])
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise KgenError(
            f"{path} can't be imported: {type(error).__name__}: {error}",
            code="package-import",
            hint="run `kgen build` on the spec; if it stays so, please report it",
        ) from error
    return Package(path, module)

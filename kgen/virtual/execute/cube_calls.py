"""Templates of the matrix unit and fixpipe.

Operands lie in L1 as fractals `[columns / c0, rows / 16, 16, c0]` with c0 = 32 bytes, results in L0C as fp32 (of int8:
int32) fractals `[columns / 16, rows / 16, 16, 16]` (AscendNPU-IR, lib/Template: LocalMmad, Fixpipe).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kgen.virtual.execute.elements import stored, widened
from kgen.virtual.execute.errors import ExecutionError
from kgen.virtual.execute.memory import Array, CoreMemory
from kgen.virtual.execute.move_calls import put_matrix
from kgen.virtual.execute.operands import Handler, element_names, is_empty, number_of, view_of
from kgen.virtual.hivm.types import Type
from kgen.virtual.machine.protocol import Operand
from kgen.virtual.templates import Template

_FRACTAL = 16
_FORMS = {"mma_tile_to": "", "mma_tile_to_ta": "a", "mma_tile_to_tb": "b", "mma_tile_to_ta_tb": "ab"}
_PRODUCTS = {("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("i8", "i32")}
_OUTPUTS = {("f32", "f32"): 0, ("f32", "f16"): 1, ("f32", "bf16"): 16, ("i32", "i32"): 0}  # the quantisation of each


def cube_handler(template: Template, types: tuple[Type, ...]) -> Handler | None:
    """The meaning of a product or of a fixpipe, None for one that isn't known."""
    kinds = element_names(types)
    turned = _FORMS.get(template.base)
    if turned is not None:
        if kinds[0] != kinds[1] or (kinds[0], kinds[6]) not in _PRODUCTS:
            return None
        return _product(kinds[0], kinds[6], "a" in turned, "b" in turned)
    if template.base.startswith("fixpipe_nz2nd") and (kinds[0], kinds[1]) in _OUTPUTS:
        return _fixpipe(kinds[0], kinds[1])
    return None


def matrix(fractals: Array) -> Array:
    """Fractals as the matrix that they hold, padding and all."""
    columns, rows, r0, c0 = fractals.shape
    whole: Array = fractals.transpose(1, 2, 0, 3).reshape(rows * r0, columns * c0)
    return whole


def _product(element: str, sums: str, left_turned: bool, right_turned: bool) -> Handler:
    """a, b, initialise, m, k, n, c, events…, unit flag: c (+)= a b, summed in fp32 or int32.

    Rows past m and columns up to whole fractals come from what lies in L1; the columns after them stay as they were.
    """
    kind = np.dtype(np.float32 if sums == "f32" else np.int32)

    def run(core: CoreMemory, x: Sequence[Operand]) -> None:
        m, k, n = (int(number_of(x[i])) for i in (3, 4, 5))
        if not m or not k or not n:
            return
        c = core.array(view_of(x[6]), sums)
        across, down = c.shape[:2]
        n = min(-(-n // _FRACTAL), across) * _FRACTAL
        a, b = (widened(matrix(core.array(view_of(o), element)), element).astype(kind, copy=False) for o in x[:2])
        with np.errstate(all="ignore"):
            new = (a.T if left_turned else a)[: down * _FRACTAL, :k] @ (b.T if right_turned else b)[:k, :n]
            if not number_of(x[2]):
                new += matrix(c)[: new.shape[0], : new.shape[1]]
        put_matrix(c, new)

    return run


def _fixpipe(source: str, target: str) -> Handler:
    """source in L0C, rows in global memory, quantisation, relu (1: yes), channel split, unit flag."""

    def run(core: CoreMemory, x: Sequence[Operand]) -> None:
        if is_empty(view_of(x[1])):
            return
        quantisation, relu, split = (int(number_of(o)) for o in x[2:5])
        if quantisation != _OUTPUTS[source, target] or relu > 1 or split:
            raise ExecutionError(
                f"from {source} to {target} with quantisation {quantisation}, relu {relu}, channel split {split}",
                code="execute-fixpipe",
                hint="only plain casts and relu 0 or 1 have a meaning here",
            )
        there = core.array(view_of(x[1]), target)
        values = matrix(core.array(view_of(x[0]), source))[: there.shape[0], : there.shape[1]]
        there[...] = stored(np.maximum(values, 0) if relu else values, target)

    return run

"""The `interpret` level of `kgen verify`: a generated package run under the interpreter against fp64 references.

The operator is compared end to end. Each stage is called alone too, on the references' intermediates rounded to the
dtypes it takes, and compared with its fp64 reference fed the same rounded values, so that one stage's rounding never
counts against another. Everything that the package allocates starts as NaN, and all that a caller can read is compared.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from kgen.errors import KgenError
from kgen.spec.models import Dtype, Param, ParamKind, Spec, Stage, Step
from kgen.verify.cases import DTYPES, GdnCase, make_inputs, widened
from kgen.verify.error_metric import max_abs, rel_rms
from kgen.verify.package import Package
from kgen.verify.program_level import gdn_references
from kgen.verify.references import gdn
from kgen.verify.rows import Row

LEVEL = "interpret"

Values = Mapping[str, Tensor | None]  # by the spec's tensor names, in public layouts


@dataclass(frozen=True)
class Expected:
    """One result of a call: its reference, the dtype it must have, and how far it may be off."""

    output: str
    reference: Tensor | None
    dtype: torch.dtype
    tolerance: float


@dataclass(frozen=True)
class Call:
    """One call of a package's function."""

    function: str
    case: str
    arguments: dict[str, Any]
    expected: tuple[Expected, ...]


def run_case(spec: Spec, package: Package, case: GdnCase, *, stages: bool = True, level: str = LEVEL) -> list[Row]:
    """The operator on one case and, unless refused, each stage on its own: a row for each output."""
    inputs = make_inputs(case)
    references = gdn_references(case, widened(inputs))
    calls = [operator_call(spec, case, inputs, references)]
    if stages:
        calls += stage_calls(spec, case, inputs, references)
    return [row for call in calls for row in run_call(package, call, level)]


# ---------------------------------------------------------------- calls


def operator_call(spec: Spec, case: GdnCase, inputs: Values, references: Values) -> Call:
    """The whole forward. Its results are held to the tolerance of the inputs' dtype."""
    operator = spec.operator
    arguments = {p.name: _plain_argument(p, case, inputs.get(p.name)) for p in operator.params if _is_passed(p)}
    tolerance = spec.tolerances[cast(Dtype, case.dtype)]
    expected = [Expected(n, references[n], _dtype(spec, n, case), tolerance) for n in operator.returns]
    return Call(operator.name, case.name, arguments, tuple(expected))


def stage_calls(spec: Spec, case: GdnCase, inputs: Values, references: Values) -> Iterator[Call]:
    """Each stage that the case runs, in each of its variants."""
    given = {p.to or p.name: inputs.get(p.name) for p in spec.operator.params if p.kind is ParamKind.TENSOR}
    for name, stage in spec.stages.items():
        values: dict[str, Tensor | None] = {}
        for p in stage.params:
            if p.kind is ParamKind.TENSOR:
                tensor = p.to or p.name
                values[p.name] = given[tensor] if tensor in given else _rounded(spec, tensor, case, references[tensor])
        if any(p.required and values.get(p.name) is None for p in stage.params if p.kind is ParamKind.TENSOR):
            continue  # no gate: nothing to sum
        step = next((s for s in spec.operator.chain if s.stage == name), Step(stage=name))
        for variant in _variants(spec, stage, step, case):
            yield _stage_call(spec, name, case, {**values, "cu_seqlens": inputs["cu_seqlens"]}, variant)


def _variants(spec: Spec, stage: Stage, step: Step, case: GdnCase) -> Iterator[dict[str, Any]]:
    """What the case leaves open: flags that the operator fixes, with its scalars for its own value of them only, and
    dtypes of outputs."""
    choices: list[list[tuple[str, Any]]] = []
    for p in stage.params:
        if p.kind is ParamKind.FLAG and p.name in step.flags:
            choices.append([(p.name, False), (p.name, True)])
        elif p.kind is ParamKind.OUTPUT_DTYPE:
            allowed = spec.dtypes.get(spec.tensors[p.to or p.name].dtype, ("fp32",))
            choices.append([(p.name, DTYPES[d]) for d in dict.fromkeys(("fp32", case.dtype)) if d in allowed])
    for chosen in itertools.product(*choices):
        variant = dict(chosen)
        own = all(variant.get(flag, value) == value for flag, value in step.flags.items())
        yield {**variant, **(step.scalars if own else {})}


def _stage_call(spec: Spec, name: str, case: GdnCase, values: Values, variant: Mapping[str, Any]) -> Call:
    stage = spec.stages[name]
    arguments = {p.name: _plain_argument(p, case, values.get(p.name)) for p in stage.params if _is_passed(p)}
    arguments.update(variant)
    asked = {p.to: p.name for p in stage.params if p.kind is ParamKind.OUTPUT_DTYPE}
    dtypes = [variant[asked[n]] if n in asked else _dtype(spec, n, case) for n in stage.returns]
    # A stage that returns anything in the inputs' dtype rounds to it inside as well, for its dots.
    own = any(n not in asked and spec.tensors[n].dtype in spec.dtypes for n in stage.returns)
    tag = "".join(f":{flag}" for flag, value in variant.items() if value is True)
    expected = []
    for output, reference, dtype in zip(stage.returns, _reference(name, arguments), dtypes, strict=True):
        kind = case.dtype if own else _dtype_name(dtype)
        suffix = f":{_dtype_name(dtype)}" if output in asked and _dtype_name(dtype) != "fp32" else ""
        expected.append(Expected(output + suffix + tag, reference, dtype, spec.tolerances[cast(Dtype, kind)]))
    return Call(name, case.name, arguments, tuple(expected))


def _is_passed(p: Param) -> bool:
    return p.kind is not ParamKind.UNSUPPORTED and (p.kind is not ParamKind.TABLE or p.name == "cu_seqlens")


def _plain_argument(p: Param, case: GdnCase, value: Tensor | None) -> Any:
    """What a case says of one parameter: tensors are given, the rest is in the case, or the default."""
    if p.kind in (ParamKind.TENSOR, ParamKind.TABLE):
        return value
    if p.kind is ParamKind.CHUNK:
        return case.chunk_size
    if p.kind is ParamKind.SWITCH:
        return case.final_state if p.to == "ht" else p.default
    if p.kind is ParamKind.FLAG and hasattr(case, p.name):
        return getattr(case, p.name)
    return DTYPES["fp32"] if p.default == "float32" else p.default


def _dtype(spec: Spec, tensor: str, case: GdnCase) -> torch.dtype:
    """The dtype of a tensor that the package makes: the case's for the class of the dots, else its own."""
    declared = spec.tensors[tensor].dtype
    return DTYPES[case.dtype] if declared == spec.dot_dtype else DTYPES[declared]


def _dtype_name(dtype: torch.dtype) -> str:
    return next(name for name, kind in DTYPES.items() if kind == dtype)


def _rounded(spec: Spec, tensor: str, case: GdnCase, value: Tensor | None) -> Tensor | None:
    return None if value is None else value.to(_dtype(spec, tensor, case))


def _reference(stage: str, arguments: Mapping[str, Any]) -> tuple[Tensor | None, ...]:
    """The fp64 reference of the same name on the same arguments."""
    function = getattr(gdn, stage, None)
    if function is None:
        raise KgenError(
            f"no reference for the stage {stage!r}",
            code="no-reference",
            hint="write it in kgen/verify/references/, with the stage's name and parameters",
        )
    known = inspect.signature(function).parameters
    result = function(**{name: value for name, value in arguments.items() if name in known})
    return result if isinstance(result, tuple) else (result,)


# ---------------------------------------------------------------- comparison


def run_call(package: Package, call: Call, level: str = LEVEL) -> Iterator[Row]:
    """Calls the package's function with poisoned outputs; a row for each result, also when it raises."""
    function = package.function(call.function)
    before = {n: x.clone() for n, x in call.arguments.items() if isinstance(x, Tensor)}
    problem, results = "", ()
    try:
        with package.poisoned():
            returned = function(**call.arguments)
        results = returned if isinstance(returned, tuple) else (returned,)
        changed = [n for n, x in before.items() if not torch.equal(x, call.arguments[n])]
        if len(results) != len(call.expected):
            problem = f"{len(results)} results, expected {len(call.expected)}"
        elif changed:
            problem = f"the call changed its argument {changed[0]}"
    except Exception as error:  # whatever generated code raises is a finding about it
        problem = f"{type(error).__name__}: {error}"
    for position, expected in enumerate(call.expected):
        value = results[position] if position < len(results) else None
        row = _row(call, expected, value, problem, level)
        if row is not None:
            yield row


def _row(call: Call, expected: Expected, value: Any, problem: str, level: str) -> Row | None:
    """The comparison of one result; None where there is none and none is expected."""
    problem = problem or _mismatch(expected, value)
    if not problem and expected.reference is None:
        return None
    error = largest = float("inf")
    if not problem and expected.reference is not None:
        error, largest = rel_rms(value, expected.reference), max_abs(value, expected.reference)
        if not bool(torch.isfinite(value).all()):
            problem = f"{int((~torch.isfinite(value)).sum())} of {value.numel()} elements are NaN or infinite"
    return Row(call.function, expected.output, call.case, level, error, largest, expected.tolerance, problem)


def _mismatch(expected: Expected, value: Any) -> str:
    """What is wrong with a result before any number is compared."""
    if value is None or expected.reference is None:
        return "" if value is expected.reference else f"{expected.output} is there on one side only"
    if tuple(value.shape) != tuple(expected.reference.shape):
        return f"shape {tuple(value.shape)}, expected {tuple(expected.reference.shape)}"
    return "" if value.dtype == expected.dtype else f"dtype {value.dtype}, expected {expected.dtype}"

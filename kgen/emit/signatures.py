"""Stage functions and the operator as data for the launcher template: parameters, checks, outputs, launches,
results."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.emit.literals import literal, quoted, safe
from kgen.spec.models import DimKind, Operator, Param, ParamKind, Scalar, Spec, Stage, Step, Tensor

ANNOTATIONS = {
    ParamKind.TENSOR: "torch.Tensor",
    ParamKind.SCALAR: "float",
    ParamKind.FLAG: "bool",
    ParamKind.SWITCH: "bool",
    ParamKind.CHUNK: "int",
    ParamKind.OUTPUT_DTYPE: "torch.dtype",
    ParamKind.TABLE: "torch.Tensor",
    ParamKind.UNSUPPORTED: "object",
}


@dataclass(frozen=True)
class Launch:
    """One kernel: launcher, its keyword arguments, and the optional tensor without which it is skipped."""

    kernel: str
    arguments: tuple[str, ...]
    when: str | None


@dataclass(frozen=True)
class Function:
    """A public function, ready for the template."""

    name: str
    doc: str
    strict: bool
    parameters: tuple[str, ...]
    returns: str
    tensor_docs: tuple[str, ...]
    checks: tuple[str, ...]
    allocations: tuple[str, ...]
    launches: tuple[Launch, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class KernelArguments:
    """What one kernel's launcher takes: tensors, scalars, spec flags."""

    tensors: tuple[str, ...]
    scalars: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass
class _Builder:
    """What stages and the operator have in common, from the spec and one parameter list."""

    spec: Spec
    params: tuple[Param, ...]
    chain: tuple[tuple[Step, Stage], ...]
    returned: tuple[str, ...]
    scale_default: str
    kernels: dict[str, KernelArguments]

    # ---------------------------------------------------------------- parameters

    def parameters(self) -> tuple[str, ...]:
        out, optional = [], False
        for p in self.params:
            annotation = ANNOTATIONS[p.kind]
            if p.required and not optional:
                out.append(f"{p.name}: {annotation}")
                continue
            optional = True
            text = default_text(p)
            suffix = " | None" if text == "None" and annotation != "object" else ""
            out.append(f"{p.name}: {annotation}{suffix} = {text}")
        return tuple(out)

    def checks(self) -> tuple[str, ...]:
        """Statements that check the parameters, in their order; tables last, when all dims are known."""
        out: list[str] = []
        tensors = [p for p in self.params if p.kind is ParamKind.TENSOR]
        for p in self.params:
            if p.kind is ParamKind.UNSUPPORTED:
                out.append(f"x.unsupported({quoted(p.name)}, {p.name}, {p.default!r})")
        out += [self._tensor_check(p) for p in tensors]
        for p in self.params:
            if p.kind is ParamKind.CHUNK:
                out.append(f"x.chunk({quoted(p.name)}, {p.name})")
        tables = [p.name for p in self.params if p.kind is ParamKind.TABLE and p.name != "chunk_offsets"]
        out.append(f"x.sequences({', '.join(f'{t}={t}' if t != 'cu_seqlens' else t for t in tables)})")
        out += [self._output_dtype(p) for p in self.params if p.kind is ParamKind.OUTPUT_DTYPE]
        default = "1.0" if self.scale_default == "one" else 'x.dims["K"] ** -0.5'
        for p in self.params:
            if p.kind is ParamKind.SCALAR:
                out.append(f"{p.to or p.name} = x.scalar({quoted(p.name)}, {p.name}, {default})")
        return tuple(out)

    def _tensor_check(self, p: Param) -> str:
        name = p.to or p.name
        tensor = self.spec.tensors[name]
        extra = ", required=True" if p.required or (not tensor.optional and not self._may_be_absent(name)) else ""
        extra += ", head_first=True" if self.head_first(tensor) else ", widened=True" if tensor.widened else ""
        return f"{name} = x.tensor({quoted(p.name)}, {p.name}, {self.dims(tensor)}, {quoted(tensor.dtype)}{extra})"

    def _may_be_absent(self, name: str) -> bool:
        return any(step.when == name for step, _ in self.chain)

    def _output_dtype(self, p: Param) -> str:
        assert p.to is not None
        allowed = self._dtypes(self.spec.tensors[p.to])
        return f'{p.name} = x.output_dtype("{p.name}", {p.name}, {literal(allowed)}, "fp32")'

    def _dtypes(self, tensor: Tensor) -> tuple[str, ...]:
        return tuple(self.spec.dtypes.get(tensor.dtype, (tensor.dtype,)))

    # ---------------------------------------------------------------- layouts

    def head_first(self, tensor: Tensor) -> bool:
        return bool(tensor.store) and self.spec.dims[tensor.store[0]].kind is DimKind.HEADS

    def dims(self, tensor: Tensor) -> str:
        """The public layout as a tuple, on the flag that changes it."""
        text = literal(tuple(tensor.dims))
        for flag, layout in tensor.store_if.items():
            text = f"{literal(tuple(layout))} if {flag} else {text}"
        return text

    # ---------------------------------------------------------------- outputs

    def _kernels(self) -> list[tuple[Step, str]]:
        return [(step, kernel) for step, stage in self.chain for kernel in stage.kernels]

    def outputs(self) -> list[tuple[str, Step]]:
        """Spec tensors that the chain writes, in order, with the step that does."""
        out: list[tuple[str, Step]] = []
        for step, kernel in self._kernels():
            entry = self.spec.kernels[kernel]
            out += [(entry.bind.get(o, o), step) for o in entry.outputs]
        return out

    def allocations(self) -> tuple[str, ...]:
        switches = {p.to: p.name for p in self.params if p.kind is ParamKind.SWITCH}
        dtypes = {p.to: p.name for p in self.params if p.kind is ParamKind.OUTPUT_DTYPE}
        out = []
        for name, step in self.outputs():
            tensor = self.spec.tensors[name]
            if self.head_first(tensor):
                text = f"x.head_first({literal(tuple(tensor.store))})"
            else:
                dtype = dtypes.get(name) or quoted(tensor.dtype)
                zero = ", zero=True" if tensor.zeroed else ""
                text = f"x.new({self.dims(tensor)}, {dtype}{zero})"
            if name in switches and name not in self._always():
                text += f" if {switches[name]} else None"
            elif step.when:
                text += f" if {step.when} is not None else None"
            out.append(f"{name} = {text}")
        return tuple(out)

    def launches(self) -> tuple[Launch, ...]:
        flags = {p.to or p.name for p in self.params if p.kind is ParamKind.FLAG}
        out = []
        for step, kernel in self._kernels():
            entry = self.spec.kernels[kernel]
            arguments = []
            for param in self.kernels[kernel].tensors:
                arguments.append(f"{param}={entry.bind.get(param, param)}")
            for scalar in self.kernels[kernel].scalars:
                arguments.append(f"{scalar}={step.scalars.get(scalar, scalar)!s}")
            for flag in self.kernels[kernel].flags:
                value = step.flags.get(flag, flag if flag in flags else False)
                arguments.append(f"{flag}={value}")
            out.append(Launch(kernel, tuple(arguments), step.when))
        return tuple(out)

    def _always(self) -> set[str]:
        """Optional outputs that a kernel of the chain always writes, whether the caller wants them or not."""
        entries = [self.spec.kernels[kernel] for _, kernel in self._kernels()]
        return {e.bind.get(p, p) for e in entries for p in e.given if p in e.outputs}

    def results(self) -> tuple[str, ...]:
        switches = {p.to: p.name for p in self.params if p.kind is ParamKind.SWITCH}
        out = []
        for name in self.returned:
            text = f"{name}.transpose(1, 2)" if self.head_first(self.spec.tensors[name]) else name
            if name in switches and name in self._always():
                text += f" if {switches[name]} else None"
            out.append(text)
        return tuple(out)

    def returns(self) -> str:
        absent = {p.to for p in self.params if p.kind is ParamKind.SWITCH}
        types = [f"torch.Tensor{' | None' if name in absent else ''}" for name in self.returned]
        return types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"

    def tensor_docs(self) -> tuple[str, ...]:
        out = []
        for p in self.params:
            if p.kind is ParamKind.TENSOR:
                tensor = self.spec.tensors[p.to or p.name]
                kinds = _either(("fp32", "bf16", "fp16") if tensor.widened else self._dtypes(tensor))
                out.append(f"{p.name}: {shape_text(tensor)} {kinds}{'; ' + safe(tensor.doc) if tensor.doc else ''}")
        return tuple(out)


def shape_text(tensor: Tensor) -> str:
    """`[B, T, H, K]` as callers see it."""
    text = _public(tensor.dims)
    for flag, layout in tensor.store_if.items():
        text += f" ({_public(layout)} with {flag})"
    return text


def _public(dims: tuple[str, ...]) -> str:
    return f"[{', '.join(f'B, {d}' if d in ('T', 'NT') else d for d in dims)}]"


def default_text(p: Param) -> str:
    """The default as source: `None`, a number, a bool or a dtype."""
    value: Scalar = p.default
    return "torch.float32" if value == "float32" else repr(value)


def _either(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def functions(spec: Spec, kernels: dict[str, KernelArguments]) -> tuple[Function, ...]:
    """Every stage in the spec's order, then the operator."""
    out = [_stage(spec, name, stage, kernels) for name, stage in spec.stages.items()]
    return (*out, _operator(spec, spec.operator, kernels))


def _stage(spec: Spec, name: str, stage: Stage, kernels: dict[str, KernelArguments]) -> Function:
    step = Step(stage=name)
    return _function(
        spec, name, stage.doc, True, stage.params, ((step, stage),), stage.returns, stage.scale_default, kernels
    )


def _operator(spec: Spec, op: Operator, kernels: dict[str, KernelArguments]) -> Function:
    chain = tuple((step, spec.stages[step.stage]) for step in op.chain)
    return _function(spec, op.name, op.doc, False, op.params, chain, op.returns, op.scale_default, kernels)


def _function(
    spec: Spec,
    name: str,
    doc: str,
    strict: bool,
    params: tuple[Param, ...],
    chain: tuple[tuple[Step, Stage], ...],
    returned: tuple[str, ...],
    scale_default: str,
    kernels: dict[str, KernelArguments],
) -> Function:
    b = _Builder(spec, params, chain, returned, scale_default, kernels)
    checks = b.checks()
    if not strict and spec.operator.forward_only:
        tensors = [p.name for p in params if p.kind is ParamKind.TENSOR]
        checks = (f"x.forward_only({', '.join(f'{t}={t}' for t in tensors)})", *checks)
    return Function(
        name, safe(doc), strict, b.parameters(), b.returns(), b.tensor_docs(), checks, b.allocations(), b.launches(),
        b.results()
    )  # fmt: skip

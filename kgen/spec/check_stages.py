"""Whether stage functions and the operator's chain fit the spec: parameters, what each step needs, what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kgen.spec.explain import near, shown
from kgen.spec.lookup import Lookup, stands_for
from kgen.spec.models import DimKind, Param, ParamKind, Stage, Step
from kgen.spec.nodes import Path

# What launchers know how to make from cu_seqlens, or to take ready-made.
TABLES = ("cu_seqlens", "cu_seqlens_cpu", "chunk_indices", "chunk_offsets")
OUTPUT_DTYPES = ("float32",)

_WITH_TO = (ParamKind.SWITCH, ParamKind.OUTPUT_DTYPE)
_WITHOUT_TO = (ParamKind.CHUNK, ParamKind.TABLE, ParamKind.UNSUPPORTED)


def check_stages(look: Lookup) -> None:
    """Every stage's parameters, kernels and returns."""
    for name, stage in look.spec.stages.items():
        path: Path = ("stages", name)
        look.some(stage.kernels, (*path, "kernels"), "name the kernels it launches, in order")
        look.unique(stage.kernels, (*path, "kernels"))
        for position, kernel in enumerate(stage.kernels):
            look.need("kernel", kernel, look.spec.kernels, (*path, "kernels", position))
        _returns(look, stage, path)
        _params(look, stage.params, stage.returns, _written(look, stage), path)
        _scale(look, stage.scale_default, path)


def check_operator(look: Lookup) -> None:
    """The operator's parameters, and whether each step of its chain has what it needs."""
    operator = look.spec.operator
    path: Path = ("operator",)
    look.some(operator.chain, ("operator", "chain"), "list the stages it calls, in order")
    look.some(operator.returns, ("operator", "returns"), "name the tensors it returns")
    look.unique(operator.returns, ("operator", "returns"))
    for position, tensor in enumerate(operator.returns):
        look.need("tensor", tensor, look.spec.tensors, ("operator", "returns", position))
    stages = [look.spec.stages[step.stage] for step in operator.chain if step.stage in look.spec.stages]
    _params(look, operator.params, operator.returns, set().union(*(_written(look, s) for s in stages)), path)
    _scale(look, operator.scale_default, path)
    made = _Made(look)
    for position, step in enumerate(operator.chain):
        made.step(step, ("operator", "chain", position))
    for position, tensor in enumerate(operator.returns):
        if tensor not in made.always and tensor not in made.sometimes:
            raise look.error(
                "unavailable",
                ("operator", "returns", position),
                f"no step of the chain makes {tensor!r}",
                near(tensor, made.always | set(made.sometimes)),
            )


def _returns(look: Lookup, stage: Stage, path: Path) -> None:
    written = _written(look, stage)
    look.some(stage.returns, (*path, "returns"), "name the tensors it returns")
    look.unique(stage.returns, (*path, "returns"))
    for position, tensor in enumerate(stage.returns):
        at = (*path, "returns", position)
        look.need("tensor", tensor, look.spec.tensors, at)
        if tensor not in written:
            raise look.error("unavailable", at, f"no kernel of this stage writes {tensor!r}", near(tensor, written))


def _written(look: Lookup, stage: Stage) -> set[str]:
    """The tensors that a stage's kernels write."""
    kernels = [look.spec.kernels[name] for name in stage.kernels]
    return {kernel.bind.get(output, output) for kernel in kernels for output in kernel.outputs}


def _scale(look: Lookup, default: str, path: Path) -> None:
    dim = look.spec.dims.get("K")
    if default == "rsqrt_K" and (dim is None or dim.kind is not DimKind.STATIC):
        raise look.error(
            "unknown-static-dim",
            (*path, "scale_default"),
            "'rsqrt_K' needs a static dim K",
            "add the dim, or write scale_default: one",
        )


def _params(look: Lookup, params: tuple[Param, ...], returns: tuple[str, ...], written: set[str], path: Path) -> None:
    """Order isn't checked: fla puts required parameters after optional ones, and the emitter then refuses None."""
    chunks = [position for position, param in enumerate(params) if param.kind is ParamKind.CHUNK]
    if len(chunks) > 1:
        raise look.error("param", (*path, "params", chunks[1]), "a second chunk size", "remove one of them")
    for position, param in enumerate(params):
        at = (*path, "params", position)
        if param.to is not None and param.kind in _WITHOUT_TO:
            raise look.error(
                "param", (*at, "to"), f"a parameter of kind '{param.kind.value}' stands for nothing", "remove to"
            )
        if param.to in (None, param.name) and param.kind in _WITH_TO:
            raise look.error(
                "param",
                at,
                f"a parameter of kind '{param.kind.value}' and the tensor that it is about need two names",
                "add to: <tensor>, and give the parameter another name",
            )
        if param.to not in (None, param.name) and param.kind is ParamKind.FLAG:
            raise look.error("param", (*at, "to"), "a flag's parameter has the flag's name", f"name it {param.to}")
        if param.required and param.default is not None:
            raise look.error(
                "param", (*at, "default"), "a required parameter has no default", "remove default, or required"
            )
        _KINDS[param.kind](look, param, returns, at)
    _variables(look, params, written, path)


def _variables(look: Lookup, params: tuple[Param, ...], written: set[str], path: Path) -> None:
    """In the emitted function a tensor has its spec's name once its parameter is checked: none may hide another."""
    values = {ParamKind.TENSOR, ParamKind.SCALAR}
    taken: dict[str, int] = {}
    for position, param in enumerate(params):
        name = stands_for(param)
        if param.kind in values and name in taken:
            other = params[taken[name]].name
            message = f"{param.name!r} and {other!r} both stand for {name!r}"
            raise look.error("param", (*path, "params", position), message, "remove one of them")
        if param.kind in values:
            taken[name] = position
    for position, param in enumerate(params):
        own = taken.get(param.name, position) == position
        if not own or (param.kind not in values and param.name in written):
            message = f"{param.name!r} is the name of a tensor or scalar that something else here stands for"
            raise look.error("param", (*path, "params", position, "name"), message, "choose another name")


def _param_tensor(look: Lookup, param: Param, returns: tuple[str, ...], at: Path) -> None:
    look.need("tensor", stands_for(param), look.spec.tensors, _place(param, at))
    _default(look, param, at, param.default is None, "nothing")


def _param_scalar(look: Lookup, param: Param, returns: tuple[str, ...], at: Path) -> None:
    look.need("scalar", stands_for(param), look.spec.scalars, _place(param, at))
    _default(
        look, param, at, param.default is None or isinstance(param.default, float), "a float such as 1.0, or nothing"
    )


def _param_flag(look: Lookup, param: Param, returns: tuple[str, ...], at: Path) -> None:
    look.need("flag", stands_for(param), look.spec.flags, _place(param, at))
    _default(look, param, at, param.required or isinstance(param.default, bool), "true or false")


def _param_switch(look: Lookup, param: Param, returns: tuple[str, ...], at: Path) -> None:
    name = stands_for(param)
    look.need("tensor", name, look.spec.tensors, _place(param, at))
    if name not in returns or not look.spec.tensors[name].optional:
        known = [tensor for tensor in returns if look.spec.tensors[tensor].optional]
        raise look.error(
            "optional", _place(param, at), f"{name!r} isn't an optional tensor that is returned here", near(name, known)
        )
    _default(look, param, at, param.required or isinstance(param.default, bool), "true or false")


def _param_chunk(look: Lookup, param: Param, returns: tuple[str, ...], at: Path) -> None:
    values = look.spec.chunks
    integer = isinstance(param.default, int) and not isinstance(param.default, bool)
    fits = param.required or (integer and param.default in values)
    _default(look, param, at, fits, f"one of {', '.join(map(str, values))}")


def _param_output_dtype(look: Lookup, param: Param, returns: tuple[str, ...], at: Path) -> None:
    look.need("tensor", stands_for(param), returns, _place(param, at))
    _default(look, param, at, param.default is None or param.default in OUTPUT_DTYPES, "float32 or nothing")


def _param_table(look: Lookup, param: Param, returns: tuple[str, ...], at: Path) -> None:
    look.need("table", param.name, TABLES, (*at, "name"))
    _default(look, param, at, param.default is None, "nothing")


def _param_unsupported(look: Lookup, param: Param, returns: tuple[str, ...], at: Path) -> None:
    _default(look, param, at, param.default is None or param.default is False, "false or nothing, the values accepted")
    if param.required:
        raise look.error("param", (*at, "required"), "an unsupported parameter can't be required", "remove required")


_KINDS: dict[ParamKind, Callable[[Lookup, Param, tuple[str, ...], Path], None]] = {
    ParamKind.TENSOR: _param_tensor,
    ParamKind.SCALAR: _param_scalar,
    ParamKind.FLAG: _param_flag,
    ParamKind.SWITCH: _param_switch,
    ParamKind.CHUNK: _param_chunk,
    ParamKind.OUTPUT_DTYPE: _param_output_dtype,
    ParamKind.TABLE: _param_table,
    ParamKind.UNSUPPORTED: _param_unsupported,
}


def _place(param: Param, at: Path) -> Path:
    return (*at, "to" if param.to is not None else "name")


def _default(look: Lookup, param: Param, at: Path, fits: bool, wanted: str) -> None:
    if not fits:
        raise look.error(
            "param",
            (*at, "default"),
            f"the default of a '{param.kind.value}' parameter is {wanted}, found {shown(param.default)}",
            f"write {wanted}",
        )


@dataclass
class _Made:
    """What exists while the chain runs: always, or only when an optional tensor was given."""

    look: Lookup
    always: set[str] = field(default_factory=set)
    sometimes: dict[str, str] = field(default_factory=dict)  # tensor -> the optional tensor it depends on
    wanted: set[str] = field(default_factory=set)  # outputs that the caller may switch off

    def __post_init__(self) -> None:
        for param in self.look.spec.operator.params:
            name = stands_for(param)
            if param.kind is ParamKind.TENSOR and param.required:
                self.always.add(name)
            elif param.kind is ParamKind.TENSOR:
                self.sometimes[name] = name
            elif param.kind is ParamKind.SWITCH:
                self.wanted.add(name)

    def step(self, step: Step, path: Path) -> None:
        """Check one step, then add what it returns."""
        look = self.look
        look.need("stage", step.stage, look.spec.stages, (*path, "stage"))
        stage = look.spec.stages[step.stage]
        for kind, names in ((ParamKind.SCALAR, step.scalars), (ParamKind.FLAG, step.flags)):
            known = [stands_for(param) for param in stage.params if param.kind is kind]
            for name in names:
                look.need(kind.value, name, known, (*path, f"{kind.value}s", name), key=True)
        if step.when is not None:
            self._when(step.when, (*path, "when"))
        for param in stage.params:
            if param.kind is ParamKind.TENSOR and param.required:
                self._available(stands_for(param), step, path)
        for tensor in stage.returns:
            if step.when is None and tensor not in self.wanted:
                self.always.add(tensor)
            else:
                self.sometimes[tensor] = step.when or tensor

    def _when(self, tensor: str, path: Path) -> None:
        given = {stands_for(p): p.required for p in self.look.spec.operator.params if p.kind is ParamKind.TENSOR}
        optional = [name for name, required in given.items() if not required]
        self.look.need("tensor", tensor, given, path)
        if tensor not in optional:
            raise self.look.error(
                "optional",
                path,
                f"{tensor!r} is a required parameter of the operator, so always there",
                f"remove when; {near(tensor, optional)}",
            )

    def _available(self, tensor: str, step: Step, path: Path) -> None:
        if tensor in self.always or (step.when is not None and self.sometimes.get(tensor) == step.when):
            return
        if tensor in self.sometimes:
            raise self.look.error(
                "optional",
                (*path, "stage"),
                f"{step.stage} needs {tensor!r}, which may be absent here",
                f"add when: {self.sometimes[tensor]}",
            )
        raise self.look.error(
            "unavailable",
            (*path, "stage"),
            f"{step.stage} needs {tensor!r}, which nothing before it makes",
            near(tensor, self.always | set(self.sometimes)),
        )

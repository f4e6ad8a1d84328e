"""A whole generated package as texts: kernels, launchers, tiles, runtime, plan. Pure: the same inputs give the same
bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kgen.emit.layout import wrap
from kgen.emit.literals import literal, quoted, safe
from kgen.emit.signatures import KernelArguments, functions
from kgen.emit.statements import kernel_lines
from kgen.errors import KgenBug, KgenError
from kgen.ir.nodes import Kernel, Name
from kgen.ir.rewrite import exprs
from kgen.ir.tables import TileTable
from kgen.spec.models import Param, ParamKind, Spec, Step, flag_of

MAX_NAME = 49  # the NPU runtime keeps the last 49 characters of a kernel's name (K504)


@dataclass(frozen=True)
class Lowered:
    """A kernel after all passes, with the program text that it came from."""

    kernel: Kernel
    program: str  # file name
    text: str
    tasks: str  # how many tasks a call has, in terms of `x`


def render(
    spec: Spec, lowered: list[Lowered], tiles: TileTable, templates: Path, runtime: str, header: str
) -> dict[str, str]:
    """Every Python file of the package, by name."""
    env = environment(templates)
    arguments = {k.kernel.name: _arguments(spec, k.kernel) for k in lowered}
    common = {"spec": spec, "header": header, "doc": safe(spec.doc)}
    _check_provided(spec, arguments)
    kernels = [_kernel_model(spec, k) for k in lowered]
    public = functions(spec, arguments)
    launchers = [_launcher_model(spec, k, arguments[k.kernel.name]) for k in lowered]
    uses_ln2 = any(isinstance(e, Name) and e.id == "LN2" for k in lowered for e in exprs(k.kernel.body))
    pages: dict[str, dict[str, Any]] = {
        "kernels.py": {"kernels": kernels, "uses_ln2": uses_ln2},
        "launchers.py": {"kernels": launchers, "functions": public, "facts": _facts(spec)},
        "tiles.py": _tiles_model(spec, tiles),
        "__init__.py": {"names": [f.name for f in public]},
    }
    template = {"__init__.py": "init.py.j2"}
    out = {
        name: env.get_template(template.get(name, f"{name}.j2")).render(**common, **page)
        for name, page in pages.items()
    }
    out["_runtime.py"] = f"{header}\n{runtime}"
    return {name: _tidy(text) for name, text in out.items()}


def _check_provided(spec: Spec, arguments: dict[str, KernelArguments]) -> None:
    """Every tensor and scalar that a kernel takes comes from a parameter of the function, or from its chain."""
    chains: dict[str, tuple[tuple[Param, ...], tuple[Step, ...]]] = {
        f"stages.{name}": (stage.params, (Step(stage=name),)) for name, stage in spec.stages.items()
    }
    chains["operator"] = (spec.operator.params, spec.operator.chain)
    for where, (params, steps) in chains.items():
        given = {p.to or p.name for p in params if p.kind in (ParamKind.TENSOR, ParamKind.SCALAR)}
        for step, kernel in ((s, k) for s in steps for k in spec.stages[s.stage].kernels):
            bind = spec.kernels[kernel].bind
            given |= {bind.get(o, o) for o in spec.kernels[kernel].outputs}
            needed = {bind.get(t, t) for t in arguments[kernel].tensors}
            needed |= set(arguments[kernel].scalars) - set(step.scalars)
            if missing := sorted(needed - given):
                raise KgenError(
                    f"{where}: {kernel} needs {missing[0]!r}, which no parameter and no kernel before it gives",
                    code="spec-unavailable",
                    hint=f"add a parameter: {{name: {missing[0]}, kind: tensor or scalar}}",
                )


def environment(templates: Path) -> Environment:
    """Jinja with nothing undefined allowed and no code loaded from anywhere but `templates`."""
    env = Environment(
        loader=FileSystemLoader(str(templates)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    env.globals["wrap"] = lambda text, indent: "\n".join(wrap(text, indent))
    env.filters["quoted"] = quoted
    return env


def _tidy(text: str) -> str:
    """No trailing blanks, at most two empty lines, one newline at the end."""
    lines: list[str] = []
    for line in text.split("\n"):
        line = line.rstrip()
        if line or len(lines) < 2 or lines[-1] or lines[-2]:
            lines.append(line)
    return "\n".join(lines).strip("\n") + "\n"


# ---------------------------------------------------------------- kernels


def function_name(kernel: str) -> str:
    """The name of a kernel's Triton function."""
    name = f"{kernel}_kernel"
    if len(name) > MAX_NAME:
        raise KgenBug(f"{name} is longer than {MAX_NAME} characters")
    return name


def _kernel_model(spec: Spec, k: Lowered) -> dict[str, Any]:
    kernel = k.kernel
    runtime = [n for n in kernel.runtime if n not in ("cu_seqlens", "chunk_indices", "chunk_offsets")]
    tables = [n for n in kernel.runtime if n not in runtime]
    parameters = [
        *kernel.params,
        *tables,
        *kernel.scalars,
        *runtime,
        *(f"{c}: tl.constexpr" for c in kernel.constexprs),
    ]
    return {
        "function": function_name(kernel.name),
        "parameters": parameters,
        "do_not_specialize": "[" + ", ".join(quoted(n) for n in runtime) + "]",
        "doc": _kernel_doc(spec, kernel),
        "lines": kernel_lines(kernel, k.program, k.text),
    }


def _kernel_doc(spec: Spec, kernel: Kernel) -> list[str]:
    """What the kernel computes and how each tensor lies in memory."""
    entry = spec.kernels[kernel.name]
    lines = [safe(entry.doc) or f"{kernel.name}: the tile program {kernel.program}, one task a loop turn."]
    for param in kernel.params:
        tensor = spec.tensors[entry.bind.get(param, param)]
        layout = ", ".join(tensor.store or tensor.dims)
        for flag, other in tensor.store_if.items():
            layout += f" | {flag.upper()}: {', '.join(other)}"
        out = ", written" if param in entry.outputs else ""
        absent = ", or None" if tensor.optional and param not in entry.given else ""
        lines.append(f"{param} [{layout}] {tensor.dtype}{out}{absent}{': ' + safe(tensor.doc) if tensor.doc else ''}")
    return lines


# ---------------------------------------------------------------- launchers


def _arguments(spec: Spec, kernel: Kernel) -> KernelArguments:
    flags = tuple(f for f in spec.flags if f.upper() in kernel.constexprs)
    return KernelArguments(kernel.params, kernel.scalars, flags)


def _launcher_model(spec: Spec, k: Lowered, arguments: KernelArguments) -> dict[str, Any]:
    kernel, entry = k.kernel, spec.kernels[k.kernel.name]
    tensors = {p: spec.tensors[entry.bind.get(p, p)] for p in kernel.params}
    values = [*kernel.params, *arguments.scalars]
    constants = [f"{quoted(f.upper())}: {f}" for f in arguments.flags]
    for param in kernel.params:
        flag = flag_of(param)
        if flag in kernel.constexprs:
            constants.append(f"{quoted(flag)}: {param} is not None")
    types = [
        f"{p}: torch.Tensor" + (" | None" if t.optional and p not in entry.given else "") for p, t in tensors.items()
    ]
    types += [f"{s}: float" for s in arguments.scalars] + [f"{f}: bool" for f in arguments.flags]
    tiled = bool(entry.tiles)
    shapes = [f"    {p} [{', '.join(t.store or t.dims)}]" for p, t in tensors.items()]
    return {
        "name": kernel.name,
        "function": function_name(kernel.name),
        "arguments": types,
        "summary": "\n".join(shapes),
        "tiles": tiled,
        "bound": entry.bound.value,
        "tasks": k.tasks,
        "passed": "{" + ", ".join(f"{quoted(v)}: {v}" for v in values) + "}",
        "constants": "{" + ", ".join([*constants, *(["**tiles"] if tiled else [])]) + "}",
    }


def _facts(spec: Spec) -> dict[str, str]:
    limits = {n: d.max for n, d in spec.dims.items() if d.max is not None}
    groups = {n: d.group_of for n, d in spec.dims.items() if d.group_of}
    return {
        "max": literal(limits),
        "chunk": quoted(spec.chunk),
        "chunks": repr(spec.chunks),
        "dtypes": literal({k: tuple(v) for k, v in spec.dtypes.items()}),
        "shared": literal(tuple(spec.dtypes)),
        "groups": literal(groups),
    }


# ---------------------------------------------------------------- tiles


def _tiles_model(spec: Spec, t: TileTable) -> dict[str, Any]:
    expressions = []
    for kernel, (names, widths) in t.expressions.items():
        lines: list[str] = []
        for bits, memories in widths.items():
            body = [
                line
                for n, text in zip(("ub", "l1", "l0c"), memories, strict=True)
                for line in wrap(f"{n} = ({text})", 8)
            ]
            lines += [f"{'if' if not lines else 'elif'} bits == {bits}:", *(line[4:] for line in body)]
        expressions.append({"kernel": kernel, "arguments": ["*", *names], "lines": [*lines, "return ub, l1, l0c"]})
    own, same = _distinct(t)
    return {
        "default_target": t.default_target,
        "cores": {k: literal(v) for k, v in t.cores.items()},
        "capacities": t.capacities,
        "pointer_targets": literal(t.pointer_targets),
        "margin": t.margin,
        "whole": literal(t.whole),
        "buckets": literal({k: tuple(v) for k, v in spec.buckets.items()}),
        "candidates": {
            k: literal({d: tuple(c) for d, c in e.tiles.items()}) for k, e in spec.kernels.items() if e.tiles
        },
        "table": {
            target: {k: {key: literal(v) for key, v in rows.items()} for k, rows in t.table[target].items()}
            for target in own
        },
        "same": same,
        "expressions": expressions,
        "chunk_dim": spec.chunk,
    }


def _distinct(t: TileTable) -> tuple[list[str], dict[str, str]]:
    """Targets with a table of their own, and those that share another's."""
    own: list[str] = []
    same: dict[str, str] = {}
    for target, table in t.table.items():
        twin = next((o for o in own if t.table[o] == table), None)
        if twin is None:
            own.append(target)
        else:
            same[target] = twin
    return own, same

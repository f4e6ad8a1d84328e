"""Whether the fields of a spec fit each other: every name known, every tile possible, every program where it may be."""

from __future__ import annotations

import ast
import builtins
import math
import warnings
from collections.abc import Iterable
from pathlib import Path as FilePath

from kgen.resources import specs_dir
from kgen.spec.check_stages import check_operator, check_stages
from kgen.spec.explain import near
from kgen.spec.load import LoadedSpec
from kgen.spec.lookup import Lookup
from kgen.spec.models import DimKind, Kernel, Tensor, flag_of
from kgen.spec.nodes import Path
from kgen.spec.programs import read_program
from kgen.spec.targets import target_names

DTYPES = ("bf16", "fp16", "fp32", "int32", "int64")

# The tile language's own words: a tensor of such a name would hide the built-in inside a program.
LANGUAGE_NAMES = frozenset(
    """tasks scan tiles parts heads head group chunks seqs tokens zeros full eye dot cumsum exp exp2 log tanh sigmoid
    rsqrt maximum where tril index last start end seq step local history ending inf""".split()
)
# Python's own: emitted source uses some of them, and a parameter of such a name would hide it there.
PYTHON_NAMES = frozenset(dir(builtins))

# What launchers call their own things, and what kernels do: nothing of a spec may take their place.
LAUNCHER_NAMES = frozenset({"x", "tiles", "kernels", "Arguments", "FACTS"})
KERNEL_NAMES = frozenset(
    """cu_seqlens chunk_indices chunk_offsets task_num num_core T_cur bos boh LN2 IS_VARLEN TAIL_MODE BLOCK_PTR
    load_tile store_tile load_row store_row""".split()
)
KERNEL_PREFIXES = ("b_", "i_", "j_", "o_", "m_", "bos_", "USE_")

MAX_TILE = 1024
MAX_KERNELS = 64  # a build takes each through all passes
MAX_SYNTAX = 8000  # pieces of it in the programs of all kernels together; the gated delta rule has 1000
MAX_ROWS = 10_000  # tile choices that a plan weighs, over all kernels, targets, chunks and buckets; there, 2700
MAX_KERNEL_NAME = 42  # the NPU runtime keeps 49 characters of `<name>_kernel` (K504)


def check_spec(loaded: LoadedSpec) -> None:
    """Raise the first misfit as a `KgenError` at its line."""
    look = Lookup(loaded)
    if len(look.spec.kernels) > MAX_KERNELS:
        many = f"{len(look.spec.kernels)} kernels, more than {MAX_KERNELS}"
        raise look.error("too-large", ("kernels",), many, "split the spec", key=True)
    _names(look)
    _dims(look)
    _dtypes(look)
    for name, tensor in look.spec.tensors.items():
        _tensor(look, name, tensor)
    _buckets(look)
    for name, kernel in look.spec.kernels.items():
        _kernel(look, name, kernel)
    _effort(look)
    check_stages(look)
    check_operator(look)
    _tolerances_and_shapes(look)
    _targets(look)


def _names(look: Lookup) -> None:
    """One namespace for what a program can name; another for what a generated package can call."""
    spec = look.spec
    in_programs: dict[str, Path] = {}
    for section in ("dims", "tensors", "flags", "scalars"):
        for name in getattr(spec, section):
            path = (section, name)
            _reserved(look, name, path, LANGUAGE_NAMES | PYTHON_NAMES | LAUNCHER_NAMES, key=True)
            _clash(look, name, path, in_programs, key=True)
            _in_kernels(look, name.upper() if section == "flags" else name, path)
    _capitals(look)
    for section in ("kernels", "stages"):
        for name in getattr(spec, section):
            _reserved(look, name, (section, name), PYTHON_NAMES | LAUNCHER_NAMES, key=True)
            if section == "kernels" and len(name) > MAX_KERNEL_NAME:
                long = f"{len(name)} characters, more than {MAX_KERNEL_NAME}"
                raise look.error("name", (section, name), long, "shorten it", key=True)
    public: dict[str, Path] = {name: ("stages", name) for name in spec.stages}
    _reserved(look, spec.operator.name, ("operator", "name"), PYTHON_NAMES | LAUNCHER_NAMES)
    _clash(look, spec.operator.name, ("operator", "name"), public)
    _reserved(look, spec.name, ("name",), PYTHON_NAMES)
    owners: list[tuple[Path, Iterable[str]]] = [(("operator",), (p.name for p in spec.operator.params))]
    owners += [(("stages", name), (p.name for p in stage.params)) for name, stage in spec.stages.items()]
    for owner, names in owners:
        seen: dict[str, Path] = {}
        for position, name in enumerate(names):
            at: Path = (*owner, "params", position, "name")
            _reserved(look, name, at, PYTHON_NAMES | LAUNCHER_NAMES)
            _clash(look, name, at, seen)


def _reserved(look: Lookup, name: str, path: Path, words: frozenset[str], *, key: bool = False) -> None:
    if name.startswith("_"):
        raise look.error(
            "name", path, f"{name!r} starts with '_'; such names are kgen's", f"write {name.strip('_')!r}", key=key
        )
    if name in words:
        owner = "Python" if name in PYTHON_NAMES else "the tile language" if name in LANGUAGE_NAMES else "the launchers"
        raise look.error("name", path, f"{name!r} is a name of {owner}", f"choose another, such as '{name}_t'", key=key)


def _in_kernels(look: Lookup, name: str, path: Path) -> None:
    """A parameter of a kernel; a flag is one in capitals."""
    dims = {*look.spec.dims, *(f"B{d}" for d in look.spec.dims)} if path[0] != "dims" else set()
    if name in KERNEL_NAMES | dims or name.startswith(KERNEL_PREFIXES):
        raise look.error("name", path, f"{name!r} is a name that kernels use themselves", "choose another", key=True)


def _capitals(look: Lookup) -> None:
    """Kernels know a flag by its name in capitals, an optional tensor's by USE_ and its name in capitals."""
    spec = look.spec
    seen: dict[str, Path] = {
        name: (section, name) for section in ("tensors", "scalars") for name in getattr(spec, section)
    }
    for flag in spec.flags:
        _clash(look, flag.upper(), ("flags", flag), seen, key=True)
    optional: dict[str, Path] = {}
    for name in (n for n, t in spec.tensors.items() if t.optional):
        _clash(look, flag_of(name), ("tensors", name), optional, key=True)
    static = {f"B{name}": name for name, dim in spec.dims.items() if dim.kind is DimKind.STATIC}
    for name in spec.dims:
        if name in static:
            what = f"{name!r} is the name of {static[name]}'s tile size"
            raise look.error("name", ("dims", name), what, "choose another", key=True)


def _parameters(look: Lookup, kernel: Kernel, path: Path) -> None:
    """What a program calls its tensors is what the kernel and its launcher call them."""
    spec = look.spec
    flags = {flag.upper() for flag in spec.flags}
    for name in kernel.bind:
        at: Path = (*path, "bind", name)
        _reserved(look, name, at, LANGUAGE_NAMES | PYTHON_NAMES | LAUNCHER_NAMES, key=True)
        _in_kernels(look, name, at)
        if name in {*spec.dims, *spec.flags, *spec.scalars, *flags}:
            raise look.error("name", at, f"{name!r} already names a dim, flag or scalar", "choose another", key=True)
    capitals: dict[str, Path] = {}
    for name in {**kernel.bind, **dict.fromkeys(kernel.outputs)}:
        if look.spec.tensors.get(kernel.bind.get(name, name)) is not None:
            _clash(look, flag_of(name), (*path, "bind", name), capitals, key=True)


def _clash(look: Lookup, name: str, path: Path, seen: dict[str, Path], *, key: bool = False) -> None:
    if name in seen:
        line = look.loaded.location(seen[name], key=True).line
        raise look.error(
            "name-clash",
            path,
            f"{name!r} already names something in {seen[name][0]} (line {line})",
            "rename one of them",
            key=key,
        )
    seen[name] = path


def _dims(look: Lookup) -> None:
    dims = look.spec.dims
    for kind in (DimKind.ROWS, DimKind.SEQUENCES, DimKind.CHUNKS, DimKind.CHUNK):
        named = [name for name, dim in dims.items() if dim.kind is kind]
        if len(named) != 1:
            path: Path = ("dims", named[1]) if named else ("dims",)
            raise look.error(
                "dims",
                path,
                f"a spec has exactly one dim of kind '{kind.value}', found {len(named)}",
                f"remove one of {', '.join(named)}" if named else f"add one, kind: {kind.value}",
                key=True,
            )
    for name, dim in dims.items():
        at: Path = ("dims", name)
        if (dim.max is not None) != (dim.kind is DimKind.STATIC):
            hint = "add max" if dim.max is None else "remove max"
            raise look.error("dims", at, "dims of kind 'static' have a max, and no others", hint, key=True)
        if bool(dim.values) != (dim.kind is DimKind.CHUNK):
            hint = "remove values" if dim.values else "add values, such as [16, 32, 64]"
            raise look.error("dims", at, "a dim of kind 'chunk' has values, and no others", hint, key=True)
        look.unique(dim.values, (*at, "values"))
        if dim.group_of is not None:
            _group(look, name, dim.group_of)


def _group(look: Lookup, name: str, group_of: str) -> None:
    dims = look.spec.dims
    path = ("dims", name, "group_of")
    look.need("dim", group_of, dims, path)
    whole = [other for other, dim in dims.items() if dim.kind is DimKind.HEADS and not dim.group_of and other != name]
    if dims[name].kind is not DimKind.HEADS:
        raise look.error("dims", path, "only a dim of kind 'heads' can be grouped", "remove group_of")
    if group_of not in whole:
        raise look.error("dims", path, f"{group_of!r} isn't an ungrouped heads dim", near(group_of, whole))


def _dtypes(look: Lookup) -> None:
    spec = look.spec
    for name, listed in spec.dtypes.items():
        path = ("dtypes", name)
        if name in DTYPES:
            raise look.error(
                "name-clash", path, f"{name!r} is a dtype itself", "give the list a name of its own", key=True
            )
        look.some(listed, path, f"list some of {', '.join(DTYPES)}")
        look.unique(listed, path)
    look.need("dtype", spec.dot_dtype, {*spec.dtypes, *DTYPES}, ("dot_dtype",))


def _tensor(look: Lookup, name: str, tensor: Tensor) -> None:
    spec = look.spec
    path = ("tensors", name)
    look.some(tensor.dims, (*path, "dims"), "name its dims in the order that programs index them")
    for position, dim in enumerate(tensor.dims):
        look.need("dim", dim, spec.dims, (*path, "dims", position))
    look.need("dtype", tensor.dtype, {*spec.dtypes, *DTYPES}, (*path, "dtype"))
    if tensor.store:
        _store(look, tensor, tensor.store, (*path, "store"))
    for flag, store in tensor.store_if.items():
        look.need("flag", flag, spec.flags, (*path, "store_if", flag), key=True)
        _store(look, tensor, store, (*path, "store_if", flag))


def _store(look: Lookup, tensor: Tensor, store: tuple[str, ...], path: Path) -> None:
    for position, dim in enumerate(store):
        look.need("dim", dim, look.spec.dims, (*path, position))
    if sorted(store) != sorted(tensor.dims):
        dims = ", ".join(tensor.dims)
        raise look.error(
            "store",
            path,
            f"[{', '.join(store)}] isn't a permutation of dims [{dims}]",
            f"order the same dims as they lie in memory: [{dims}] if they lie as indexed",
        )


def _static(look: Lookup) -> list[str]:
    return [name for name, dim in look.spec.dims.items() if dim.kind is DimKind.STATIC]


def _next_power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _size(look: Lookup, size: int, dim: str, path: Path) -> None:
    """A tile must suit the matrix unit's 16 x 16 fractals, be a shape Triton accepts, and not outgrow its dim."""
    largest = max(16, _next_power(look.spec.dims[dim].max or MAX_TILE))
    possible = [1 << power for power in range(4, 11) if 1 << power <= largest]
    if size not in possible:
        why = f"it isn't a power of two from 16 to {MAX_TILE}"
        if size & (size - 1) == 0 and size > largest:
            why = f"{dim} is at most {look.spec.dims[dim].max}"
        best = min(possible, key=lambda known: abs(known - size))
        known = ", ".join(map(str, possible))
        raise look.error(
            "impossible-tile", path, f"impossible tile {size}: {why}", f"nearest is {best}; possible: {known}"
        )


def _buckets(look: Lookup) -> None:
    spec = look.spec
    for dim, sizes in spec.buckets.items():
        path = ("buckets", dim)
        look.need("static dim", dim, _static(look), path, key=True)
        look.some(sizes, path, "list sizes up to the dim's max")
        for position, size in enumerate(sizes):
            _size(look, size, dim, (*path, position))
        if list(sizes) != sorted(set(sizes)):
            raise look.error("buckets", path, "sizes must ascend", f"write {sorted(set(sizes))}")
        if sizes[-1] < (spec.dims[dim].max or 0):
            raise look.error(
                "buckets",
                path,
                f"the largest, {sizes[-1]}, doesn't cover {dim}'s max {spec.dims[dim].max}",
                f"add {_next_power(spec.dims[dim].max or 0)}, or lower the max",
            )


def _kernel(look: Lookup, name: str, kernel: Kernel) -> None:
    spec = look.spec
    path = ("kernels", name)
    for parameter, tensor in kernel.bind.items():
        look.need("tensor", tensor, spec.tensors, (*path, "bind", parameter))
    _parameters(look, kernel, path)
    look.some(kernel.outputs, (*path, "outputs"), "name the tensors that the program writes")
    look.unique(kernel.outputs, (*path, "outputs"))
    for position, output in enumerate(kernel.outputs):
        look.need(
            "tensor", kernel.bind.get(output, output), {*spec.tensors, *kernel.bind}, (*path, "outputs", position)
        )
    _given(look, kernel, path)
    for dim, sizes in kernel.tiles.items():
        at = (*path, "tiles", dim)
        look.need("static dim", dim, _static(look), at, key=True)
        look.some(sizes, at, "list candidate sizes")
        look.unique(sizes, at)
        for position, size in enumerate(sizes):
            _size(look, size, dim, (*at, position))
        if dim not in spec.buckets:
            raise look.error(
                "buckets", at, f"{dim} is tiled, but buckets has no sizes for it", f"add {dim} to buckets", key=True
            )
    read_program(look.loaded, name)


def _effort(look: Lookup) -> None:
    """What a build costs grows with the programs, and by a product with the dims that are tiled: both are bounded."""
    spec = look.spec
    files: dict[FilePath, dict[str, int]] = {}
    syntax = rows = 0
    variants = len(spec.targets) * sum(len(d.values) for d in spec.dims.values())
    for name, kernel in spec.kernels.items():
        program = read_program(look.loaded, name)
        if program.path not in files:
            files[program.path] = _sizes(program.text)
        syntax += files[program.path].get(program.function, 0)
        if syntax > MAX_SYNTAX:
            many = f"the programs up to this one have more than {MAX_SYNTAX} pieces of syntax"
            raise look.error("too-large", ("kernels", name), many, "split the spec, or shorten the programs", key=True)
        rows += variants * math.prod(len(s) * len(spec.buckets[d]) for d, s in kernel.tiles.items())
        if rows > MAX_ROWS:
            many = f"more than {MAX_ROWS} tile choices up to this one: candidates, buckets, chunks and targets"
            raise look.error("too-large", ("kernels", name), many, "tile fewer dims, or list fewer sizes", key=True)


def _sizes(text: str) -> dict[str, int]:
    """Pieces of syntax in each function of a program file; none for one that can't be parsed: told later."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return {n.name: sum(1 for _ in ast.walk(n)) for n in tree.body if isinstance(n, ast.FunctionDef)}


def _given(look: Lookup, kernel: Kernel, path: Path) -> None:
    look.unique(kernel.given, (*path, "given"))
    for position, parameter in enumerate(kernel.given):
        at = (*path, "given", position)
        tensor = kernel.bind.get(parameter, parameter)
        look.need("tensor", tensor, {*look.spec.tensors, *kernel.bind}, at)
        if not look.spec.tensors[tensor].optional:
            raise look.error("optional", at, f"{tensor!r} isn't optional, so always there", "remove it from given")


def _tolerances_and_shapes(look: Lookup) -> None:
    spec = look.spec
    used = {dtype for listed in spec.dtypes.values() for dtype in listed if not dtype.startswith("int")}
    for dtype in sorted(used - set(spec.tolerances)):
        raise look.error("tolerance", ("tolerances",), f"none given for {dtype}", f"add {dtype}", key=True)
    for position, shape in enumerate(spec.edge_shapes):
        for dim, size in (("K", shape.K), ("V", shape.V)):
            path: Path = ("edge_shapes", position, dim)
            look.need("static dim", dim, _static(look), path, key=True)
            if not 1 <= size <= (spec.dims[dim].max or 0):
                raise look.error(
                    "shape", path, f"{dim} = {size} is outside 1 to {spec.dims[dim].max}", "change the size"
                )


def _targets(look: Lookup) -> None:
    look.some(look.spec.targets, ("targets",), "name at least one file of the targets folder")
    look.unique(look.spec.targets, ("targets",))
    known = target_names(look.loaded.path.parent / "targets") | target_names(specs_dir() / "targets")
    for position, name in enumerate(look.spec.targets):
        look.need("target", name, known, ("targets", position))

"""The op spec: what an operator's tensors, kernels, stages and public signature are.

A spec says what is computed on which layouts; tile programs say how a tile is computed; the plan says with which tiles.
Everything here is plain data: no field is ever evaluated, and every name that can reach emitted text is an identifier.
"""

from __future__ import annotations

import keyword
from enum import Enum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StringConstraints


def _not_reserved(name: str) -> str:
    if keyword.iskeyword(name) or name in {"tl", "triton", "torch"} or name.startswith("__"):
        raise ValueError(f"{name!r} is reserved in the emitted source; choose another name")
    return name


Identifier = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=48, strict=True),
    AfterValidator(_not_reserved),
]
ProgramRef = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]+[.]py:[A-Za-z_][A-Za-z0-9_]*$", max_length=200, strict=True)
]
Text = Annotated[str, StringConstraints(max_length=2000, strict=True)]
Dtype = Literal["bf16", "fp16", "fp32", "int32", "int64"]
Scalar = StrictBool | StrictInt | StrictFloat | Literal["float32"] | None


class Model(BaseModel):
    """Base of every spec model: unknown fields are errors, instances are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DimKind(str, Enum):
    """How a dim is known: `rows`, `sequences` and `chunks` at run time, the rest when a kernel is compiled."""

    ROWS = "rows"  # tokens; packed over sequences when varlen
    SEQUENCES = "sequences"
    CHUNKS = "chunks"  # chunks of all sequences
    HEADS = "heads"
    STATIC = "static"
    CHUNK = "chunk"  # rows of one chunk, and the columns a row has in its own chunk


class Dim(Model):
    """One named dim. `max` bounds a static one; `values` lists a chunk dim's sizes; `group_of` names the key heads."""

    kind: DimKind
    doc: Text = ""
    max: Annotated[StrictInt, Field(ge=1, le=65536)] | None = None
    values: tuple[Annotated[StrictInt, Field(ge=16, le=256, multiple_of=16)], ...] = ()
    group_of: Identifier | None = None


class Flag(Model):
    """A compile-time switch that programs and layouts may test."""

    doc: Text = ""


class ScalarArg(Model):
    """A run-time fp32 scalar of a kernel."""

    doc: Text = ""


class Tensor(Model):
    """One tensor as programs index it (`dims`), and how it lies in memory (`store`, `store_if`) when that differs.

    `dtype` is a list's name from `dtypes` or a dtype. `widened`: callers may pass any float dtype,
    the launcher makes it fp32. `decay`: values are <= 0 and nonincreasing within a chunk.
    """

    dims: tuple[Identifier, ...]
    dtype: Identifier
    optional: StrictBool = False
    widened: StrictBool = False
    decay: StrictBool = False
    store: tuple[Identifier, ...] = ()
    store_if: dict[Identifier, tuple[Identifier, ...]] = Field(default_factory=dict)
    zeroed: StrictBool = False
    doc: Text = ""


def flag_of(tensor: str) -> str:
    """The constexpr that says whether an optional tensor was given."""
    return f"USE_{tensor.upper()}"


class Bound(str, Enum):
    """The pipe a kernel waits for: its task loop runs on that many cores."""

    CUBE = "cube"
    VECTOR = "vector"


class Kernel(Model):
    """One tile program bound to tensors, with its tile candidates.

    `bind` maps a program's parameter to a tensor of the spec where the names differ. `tiles` maps a dim to candidate
    sizes. `given` names parameters that are always there in this kernel although the operator's tensor is optional.
    """

    program: ProgramRef
    bound: Bound
    bind: dict[Identifier, Identifier] = Field(default_factory=dict)
    outputs: tuple[Identifier, ...]
    given: tuple[Identifier, ...] = ()
    tiles: dict[Identifier, tuple[Annotated[StrictInt, Field(ge=16, le=1024, multiple_of=16)], ...]] = Field(
        default_factory=dict
    )
    doc: Text = ""


class ParamKind(str, Enum):
    """What a parameter of a stage function is."""

    TENSOR = "tensor"
    SCALAR = "scalar"  # float or None
    FLAG = "flag"  # a spec flag
    SWITCH = "switch"  # a bool: whether the named optional output is wanted
    CHUNK = "chunk"  # the chunk size
    OUTPUT_DTYPE = "output_dtype"
    TABLE = "table"  # cu_seqlens and what derives from it
    UNSUPPORTED = "unsupported"  # in fla's signature, refused unless None / False


class Param(Model):
    """One parameter of a stage function or of the operator, in fla's order."""

    name: Identifier
    kind: ParamKind
    to: Identifier | None = None  # tensor, scalar, flag or output it stands for, where the name differs
    required: StrictBool = False
    default: Scalar = None


class Stage(Model):
    """A public stage function: fla's name and signature, the kernels it launches in order, and what it returns."""

    doc: Text
    params: tuple[Param, ...]
    kernels: tuple[Identifier, ...]
    returns: tuple[Identifier, ...]
    scale_default: Literal["one", "rsqrt_K"] = "one"


class Step(Model):
    """One stage of the operator's chain, by the spec's own tensor names; `when` names the optional tensor it needs."""

    stage: Identifier
    scalars: dict[Identifier, StrictFloat] = Field(default_factory=dict)
    flags: dict[Identifier, StrictBool] = Field(default_factory=dict)
    when: Identifier | None = None


class Operator(Model):
    """The public operator: signature, chain of stages, results. `forward_only`: no backward is generated yet."""

    name: Identifier
    doc: Text
    params: tuple[Param, ...]
    chain: tuple[Step, ...]
    returns: tuple[Identifier, ...]
    scale_default: Literal["one", "rsqrt_K"] = "rsqrt_K"
    forward_only: StrictBool = False


class Shape(Model):
    """Values of static dims that tests and the plan's table cover."""

    K: StrictInt
    V: StrictInt


class BenchShape(Model):
    """A call that benches measure: sizes by the spec's dims and B, and the rows of each sequence of a packed batch."""

    sizes: dict[Identifier, Annotated[StrictInt, Field(ge=1, le=1 << 24)]]
    lengths: tuple[Annotated[StrictInt, Field(ge=0, le=1 << 24)], ...] = ()


class Spec(Model):
    """An operator's whole spec, one YAML file."""

    name: Identifier
    doc: Text
    dims: dict[Identifier, Dim]
    dtypes: dict[Identifier, tuple[Dtype, ...]]
    flags: dict[Identifier, Flag] = Field(default_factory=dict)
    scalars: dict[Identifier, ScalarArg] = Field(default_factory=dict)
    tensors: dict[Identifier, Tensor]
    dot_dtype: Identifier
    kernels: dict[Identifier, Kernel]
    stages: dict[Identifier, Stage]
    operator: Operator
    tolerances: dict[Dtype, Annotated[StrictFloat, Field(gt=0, le=1)]]
    targets: tuple[Identifier, ...]
    buckets: dict[Identifier, tuple[Annotated[StrictInt, Field(ge=16, le=1024)], ...]]
    edge_shapes: tuple[Shape, ...] = ()
    bench_shapes: tuple[BenchShape, ...] = ()

    def one(self, kind: DimKind) -> str:
        """The name of the only dim of a kind (`T` for rows, `BT` for chunk …)."""
        return next(n for n, d in self.dims.items() if d.kind is kind)

    @property
    def chunk(self) -> str:
        """The name of the chunk dim, whose size is a constexpr of every kernel (`BT`)."""
        return self.one(DimKind.CHUNK)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunk sizes that a call may ask for, in rows."""
        return self.dims[self.chunk].values

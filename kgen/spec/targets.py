"""Chip facts: what each target's compiler and cores are like, and how sure that is."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StringConstraints

from kgen.errors import KgenError, Location
from kgen.resources import specs_dir
from kgen.spec.explain import near, validate
from kgen.spec.load import read_document
from kgen.spec.models import Identifier, Model, Text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")

T = TypeVar("T")
Bytes = Annotated[StrictInt, Field(ge=1, le=1 << 40)]
Count = Annotated[StrictInt, Field(ge=1, le=1 << 20)]
Number = Annotated[StrictFloat, Field(gt=0, le=1e6)]
DeviceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:.-]+$", max_length=48, strict=True)]


class Evidence(str, Enum):
    """How a fact is known."""

    RUN = "run"  # reproduced through the real compiler
    SEED = "seed"  # stated by the performance guide the project began from
    PUBLIC = "public"  # read in public sources
    GUESS = "guess"  # nobody has measured it


class Fact(Model, Generic[T]):
    """A value with the reason to believe it."""

    value: T
    evidence: Evidence
    source: Text


class AccessMode(str, Enum):
    """How kernels reach memory: Triton block pointers, or pointers with masks."""

    BLOCK_PTR = "block_ptr"
    POINTER = "pointer"


class Cores(Model):
    """Cores of the chip; a GPU's are read from the device at run time."""

    cube: Fact[Count]
    vector: Fact[Count]


class Memory(Model):
    """On-chip memories of an NPU core, in bytes; alignments are those of the compiler's allocator."""

    ub_bytes: Fact[Bytes]
    l1_bytes: Fact[Bytes]
    l0a_bytes: Fact[Bytes]
    l0b_bytes: Fact[Bytes]
    l0c_bytes: Fact[Bytes]
    ub_align: Fact[Count]
    l1_align: Fact[Count]
    l0c_align: Fact[Count]


class Placement(Model):
    """Numbers of the rules by which the compiler places tiles."""

    workspace_slots: Fact[Count]  # copies of a vector value that lives across a dot
    loop_buffers: Fact[Count]  # of a buffer that a load or store in a loop touches, vector-only kernels
    mixed_buffers: Fact[Count]  # the same, kernels with dots
    dot_operand_buffers: Fact[Count]  # in L1
    vector_cores_per_block: Fact[Count]  # that share the rows in a mixed kernel
    fractal_rows: Fact[Count]
    fractal_row_bytes: Fact[Count]
    row_pad_bytes: Fact[Count]  # the last non-contiguous dim is padded to it
    broadcast_row_bytes: Fact[Count]
    broadcast_row_multiple: Fact[Count]
    select_bytes: Fact[Count]
    select_scalar_bytes: Fact[Count]  # for each branch that is a scalar
    scalar_operand_bytes: Fact[Count]  # divide or subtract
    from_bool_bytes: Fact[Count]
    transpose64_bytes: Fact[Count]  # last axis, 64-bit


class Cost(Model):
    """Constants of the timeline model: cycles, bytes per cycle and core, and chip-wide rates."""

    clock_ghz: Fact[Number]
    vector_bytes: Fact[Count]  # of one vector step, which the cycles below are for
    vector_cycles: Fact[Count]  # add, multiply, exp, select
    vector_cheap_cycles: Fact[Count]  # casts and forms with a scalar
    vector_divide_cycles: Fact[Count]
    vector_reduce_cycles: Fact[Count]  # along the last axis
    vector_transpose_cycles: Fact[Count]
    vector_modulo_cycles: Fact[Count]
    vector_drain_cycles: Fact[Count]  # until a dependent instruction can start
    vector_start_cycles: Fact[Count]  # each further instruction of a template
    vector_element_cycles: Fact[Count]  # an element that no instruction can move with others
    vector_copy_bytes: Fact[Count]  # a cycle, within UB
    mma_cycles: Fact[Count]  # 16 x 16 x 16, 16-bit
    mma_fp32_cycles: Fact[Count]  # 16 x 16 x 8
    mma_start_cycles: Fact[Count]
    mma_latency_cycles: Fact[Count]
    l0_start_cycles: Fact[Count]  # each load from L1: a product has two, one after the other
    l1_to_l0a: Fact[Number]
    l1_to_l0b: Fact[Number]
    dma_issue_cycles: Fact[Count]
    dma_burst_cycles: Fact[Count]  # least time of one contiguous run
    dma_element_load_cycles: Fact[Count]  # the same for a run of less than 32 bytes
    dma_element_store_cycles: Fact[Count]
    dma_line_bytes: Fact[Count]  # of global memory: a row costs the lines that it touches
    dma_row_cycles: Fact[Number]  # least time of a row brought to L1 in fractals
    gm_to_ub: Fact[Number]
    ub_to_gm: Fact[Number]
    gm_to_l1: Fact[Number]
    l0c_to_gm: Fact[Number]
    fixpipe_elements: Fact[Number]  # a cycle from L0C to global memory, whatever their width
    l1_fill: Fact[Number]
    read_latency_cycles: Fact[Count]
    write_latency_cycles: Fact[Count]
    fixpipe_latency_cycles: Fact[Count]
    scalar_cycles: Fact[Number]
    scalar_divide_cycles: Fact[Number]
    scalar_flag_cycles: Fact[Number]
    scalar_vector_call_cycles: Fact[Number]  # each dimension of a template
    scalar_dma_call_cycles: Fact[Number]
    scalar_mma_call_cycles: Fact[Number]
    scalar_gm_cycles: Fact[Number]  # one element of global memory
    scalar_hit_cycles: Fact[Number]  # the same where its line is in the data cache
    scalar_line_bytes: Fact[Count]  # of the data cache
    scalar_cache_lines: Fact[Count]
    scalar_load_cycles: Fact[Number]  # one element of UB
    scalar_store_cycles: Fact[Number]
    queue_depth: Fact[Count]  # instructions that a pipe holds before the scalar unit must wait
    flag_cycles: Fact[Count]
    cross_core_flag_cycles: Fact[Count]
    hbm_tb_per_s: Fact[Number]
    l2_tb_per_s: Fact[Number]
    launch_us: Fact[Number]  # of a kernel for vector cores
    launch_cube_us: Fact[Number]  # of one that has cube cores
    block_us: Fact[Number]  # a block on a core that has run another


class Target(Model):
    """One kind of device. `cores`, `memory` and `placement` are an NPU's; `shared_bytes` is a GPU's."""

    name: Identifier
    doc: Text
    family: Literal["a2", "a3", "a5", "cuda"]
    compiler_target: Fact[DeviceName]
    access_mode: Fact[AccessMode]
    power_of_two_tiles: Fact[StrictBool]
    grid_limit: Fact[Bytes]  # programs of a launch
    cores: Cores | None = None
    memory: Memory | None = None
    shared_bytes: Fact[Bytes] | None = None  # of one block, opted in
    placement: Placement | None = None
    cost: Cost | None = None
    rules: dict[Identifier, Fact[Text]] = Field(default_factory=dict)  # what a pass obeys, by code, beyond the guide's

    @property
    def confirmed(self) -> bool:
        """Whether the compiler's verdict is three-state (fits, degraded, overflows), so that tiles are confirmed by it.

        A 950's isn't: it is planned by expression.
        """
        return self.family in ("a2", "a3")


def load_target(name: str, folder: Path | None = None) -> Target:
    """The facts of a target, from `folder` where it has them, else from those that kgen brings."""
    folders = [folder, specs_dir() / "targets"] if folder else [specs_dir() / "targets"]
    known = {each: place for place in reversed(folders) for each in target_names(place)}
    if name not in known:
        raise KgenError(f"unknown target {name[:60]!r}", code="target-unknown", hint=near(name, known))
    document = read_document(known[name] / f"{name}.yaml", "target")
    target = validate(Target, document.root, document.source, "target")
    if target.name != name:
        raise KgenError(
            f"the file {name}.yaml describes {target.name!r}",
            code="target-name",
            location=document.location(("name",)),
            hint=f"write name: {name}",
        )
    _check_family(target, document.location(("family",)))
    return target


def target_names(folder: Path) -> set[str]:
    """The targets that a folder describes; only files whose name is safe to build a path from count."""
    if not folder.is_dir():
        return set()
    return {file.stem for file in folder.glob("*.yaml") if _NAME.fullmatch(file.stem) and file.is_file()}


def _check_family(target: Target, location: Location) -> None:
    """An NPU needs cores, memory, placement and cost; a GPU its shared memory."""
    gpu = target.family == "cuda"
    wanted = ("shared_bytes",) if gpu else ("cores", "memory", "placement", "cost")
    other = ("cores", "memory", "placement", "cost") if gpu else ("shared_bytes",)
    for field in wanted:
        if getattr(target, field) is None:
            raise KgenError(
                f"family '{target.family}' needs {field}",
                code="target-missing-field",
                location=location,
                hint=f"add {field}; the targets that kgen brings show how",
            )
    for field in other:
        if getattr(target, field) is not None:
            raise KgenError(
                f"family '{target.family}' has no {field}",
                code="target-unknown-field",
                location=location,
                hint=f"remove {field}, or correct the family",
            )

"""The constants of the timeline model as plain numbers, taken from a target's facts.

Every number comes from `specs/targets/*.yaml`, where it stands with its source or as a guess; none is written here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from kgen.errors import KgenError

if TYPE_CHECKING:
    from kgen.spec.targets import Target


_FIXED = frozenset(
    {
        "cube_cores",
        "vector_cores",
        "l0a_bytes",
        "l0b_bytes",
        "scalar_line_bytes",
        "scalar_cache_lines",
        "dma_line_bytes",
        "borrowed_by",
    }
)
_WHOLE = frozenset({"queue_depth"})


@dataclass(frozen=True)
class Costs:
    """Cycles at `clock_ghz` unless the name says otherwise; bandwidths are bytes a cycle and core."""

    clock_ghz: float
    cube_cores: int
    vector_cores: int
    # the vector unit: cycles for each `vector_bytes` bytes
    vector_bytes: float
    vector_cycles: float  # add, multiply, exp, select
    vector_cheap_cycles: float  # casts and forms with a scalar
    vector_divide_cycles: float
    vector_reduce_cycles: float
    vector_transpose_cycles: float
    vector_modulo_cycles: float
    vector_drain_cycles: float  # until a dependent instruction may start
    vector_start_cycles: float  # each further instruction of a template that needs several
    vector_element_cycles: float  # an element moved one at a time, where the layout lets no instruction do it
    vector_copy_bytes: float  # a cycle, within UB
    # the matrix unit
    mma_cycles: float  # 16 x 16 x 16, 16-bit
    mma_fp32_cycles: float  # 16 x 16 x 8
    mma_start_cycles: float
    mma_latency_cycles: float
    l0_start_cycles: float  # a load from L1 to L0A or L0B
    l1_to_l0a: float
    l1_to_l0b: float
    # moves between global and on-chip memory
    dma_issue_cycles: float
    dma_burst_cycles: float  # least time of one contiguous run
    dma_element_load_cycles: float  # the same for a run of less than 32 bytes
    dma_element_store_cycles: float
    dma_line_bytes: int  # of global memory
    dma_row_cycles: float  # least time of a row brought to L1 in fractals
    gm_to_ub: float
    ub_to_gm: float
    gm_to_l1: float
    l0c_to_gm: float
    fixpipe_elements: float  # a cycle from L0C to global memory
    l1_fill: float
    read_latency_cycles: float
    write_latency_cycles: float
    fixpipe_latency_cycles: float
    # the scalar unit
    scalar_cycles: float
    scalar_divide_cycles: float
    scalar_flag_cycles: float
    scalar_vector_call_cycles: float  # for each dimension of the template
    scalar_dma_call_cycles: float
    scalar_mma_call_cycles: float
    scalar_gm_cycles: float  # one element of global memory
    scalar_hit_cycles: float  # the same where its line is in the data cache
    scalar_line_bytes: int  # of the data cache
    scalar_cache_lines: int
    scalar_load_cycles: float  # one element of UB
    scalar_store_cycles: float
    l0a_bytes: int  # half of each is filled while the matrix unit reads the other
    l0b_bytes: int
    queue_depth: int  # instructions that wait for a pipe before the scalar unit must
    # synchronisation
    flag_cycles: float
    cross_core_flag_cycles: float
    # the chip
    hbm_tb_per_s: float
    l2_tb_per_s: float
    launch_us: float
    launch_cube_us: float
    block_us: float  # to start a block on a core that has run another
    borrowed_by: str = ""  # the target's name where none of its constants was measured on it or read in its sources

    @classmethod
    def of(cls, target: Target) -> Costs:
        """The constants of a target."""
        if target.cost is None or target.cores is None or target.memory is None:
            raise KgenError(
                f"{target.name} has no cost constants, so nothing can be modelled for it",
                code="target-cost",
                hint="choose an Ascend target",
            )
        found = {name: getattr(target.cost, name) for name in type(target.cost).model_fields}
        facts = {name: fact.value for name, fact in found.items()}
        borrowed = all(fact.evidence.value == "guess" for fact in found.values())
        return cls(
            cube_cores=target.cores.cube.value, vector_cores=target.cores.vector.value,
            l0a_bytes=target.memory.l0a_bytes.value, l0b_bytes=target.memory.l0b_bytes.value,
            borrowed_by=target.name if borrowed else "", **facts,
        )  # fmt: skip

    def scaled(self, name: str, factor: float) -> Costs:
        """The same with one constant multiplied; a depth stays a whole number of at least 1."""
        value = getattr(self, name) * factor
        return replace(self, **{name: max(1, round(value)) if name in _WHOLE else value})

    @classmethod
    def constants(cls) -> list[str]:
        """The constants that the sensitivity analysis moves: all but sizes of the chip."""
        return [field.name for field in fields(cls) if field.name not in _FIXED]

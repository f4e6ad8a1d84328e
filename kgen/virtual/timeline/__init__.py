"""The modelled time of a compiled kernel: an event-driven model of one block's cores, and the chip's floors."""

from kgen.virtual.timeline.costs import Costs
from kgen.virtual.timeline.model import CoreUse, CostLine, Timeline, evaluate, model
from kgen.virtual.timeline.recording import Recording, record

__all__ = ["CoreUse", "CostLine", "Costs", "Recording", "Timeline", "evaluate", "model", "record"]

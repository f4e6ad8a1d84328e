"""The on-chip memory of a kernel as an SVG: for each function its memories one above another, over program order."""

from __future__ import annotations

from kgen.virtual.memory import svg
from kgen.virtual.memory.axis import Steps
from kgen.virtual.memory.panel import COLOURS, FAINT, HATCH, HEIGHT, INK, RED, Panel
from kgen.virtual.memory.program import Loop
from kgen.virtual.memory.report import FunctionMemory, MemoryReport

_WIDTH = 1280.0
_LEFT, _RIGHT = 76.0, _WIDTH - 24.0
_TITLE = 64.0  # above the first function: the kernel's name and the legend
_HEAD = 30.0  # of a function
_BRACKET = 15.0  # a level of loops
_FOOT = 46.0  # the axis of source lines


def picture(report: MemoryReport, title: str = "") -> str:
    """The text of the picture; the same report gives the same bytes. `title` stands on top, a kernel or a variant."""
    name = title or _kernel(report)
    functions = [function for function in report.functions if function.buffers]
    height = _TITLE + sum(_height(function) for function in functions)
    root = svg.document(_WIDTH, height, f"On-chip memory of {name}")
    _hatch(root)
    svg.text(root, _LEFT, 26, f"On-chip memory of {name}", 16, fill=INK, font_weight="bold")
    _legend(root, report, 46)
    top = _TITLE
    for function in functions:
        _function(root, function, top)
        top += _height(function)
    return svg.render(root)


def _kernel(report: MemoryReport) -> str:
    """What the functions of a kernel have in common of their names."""
    name = report.functions[0].name
    return name.removesuffix("_mix_aic").removesuffix("_mix_aiv")


def _depth(function: FunctionMemory) -> int:
    """How deep its loops are nested."""
    return max((len(loop.chain()) for loop in function.loops), default=0)


def _height(function: FunctionMemory) -> float:
    return _HEAD + _BRACKET * _depth(function) + HEIGHT * len(function.spaces) + _FOOT


def _function(root: svg.Node, function: FunctionMemory, top: float) -> None:
    steps = Steps.of(function, _LEFT, _RIGHT)
    svg.line(root, 12, top, _WIDTH - 12, top, stroke="#d5d5d5")
    svg.text(root, _LEFT, top + 20, _heading(function), 13, fill=INK)
    top += _HEAD
    for loop in function.loops:
        _loop(root, loop, steps, top + _BRACKET * (len(loop.chain()) - 1))
    top += _BRACKET * _depth(function)
    for memory in function.spaces:
        Panel.of(function, memory, steps, top).draw(root)
        top += HEIGHT
    _lines(root, steps, top)


def _heading(function: FunctionMemory) -> str:
    core = {"aic": "cube core", "aiv": "vector core"}.get(function.core, function.core)
    parts = [f"{function.name} ({core})"]
    if function.mixed and function.core == "aiv" and function.one_vector_core:
        parts.append("one of two vector cores idle")
    if function.double_buffering != "none":
        parts.append(f"double buffering {function.double_buffering}")
    return "  ·  ".join(parts)


def _loop(root: svg.Node, loop: Loop, steps: Steps, top: float) -> None:
    """A bracket over what a loop repeats; a loop that touches nothing has none."""
    left, right, y = steps.start(loop.begin), steps.stop(loop.end), top + 8
    if right <= left:
        return
    svg.path(root, [(left, y + 5), (left, y), (right, y), (right, y + 5)], class_="loop", fill="none", stroke=FAINT)
    label = f"loop, line {loop.place.line}" if loop.place is not None else "loop"
    if right - left > 6 * len(label):
        middle, half = (left + right) / 2, 2.9 * len(label)
        svg.rect(root, middle - half, y - 5, 2 * half, 10, fill="#ffffff")
        svg.text(root, middle, y + 3.5, label, 10, fill=FAINT, text_anchor="middle")


def _lines(root: svg.Node, steps: Steps, top: float) -> None:
    """The axis of source lines, with as many numbers as there is room for."""
    svg.line(root, steps.left, top, steps.right, top, stroke=FAINT)
    free = 0.0
    for x, number in steps.lines():
        labelled = x >= free
        svg.line(root, x, top, x, top + (6 if labelled else 3), stroke=FAINT)
        if labelled:
            svg.text(root, x, top + 16, str(number), 9, fill=FAINT)
            free = x + 6 + 5.5 * len(str(number))
    files = sorted({place.file for place in steps.places if place is not None})
    count = len(steps.positions)
    note = f"program order, {count} operations"
    note = f"source line of {', '.join(files)}  ·  {note}" if files else note
    svg.text(root, steps.right, top + 32, note, 10, fill=FAINT, text_anchor="end")


def _legend(root: svg.Node, report: MemoryReport, y: float) -> None:
    """What the colours mean that the picture has."""
    buffers = [buffer for function in report.functions for buffer in function.buffers if buffer.bytes]
    kinds = {buffer.kind for buffer in buffers}
    entries = [entry for kind, entry in COLOURS.items() if kind in kinds]
    if any(buffer.wasted_bytes for buffer in buffers):
        entries.append((f"url(#{HATCH})", "never touched, as a share of the buffer"))
    x = _LEFT
    for colour, label in entries:
        svg.rect(root, x, y - 9, 14, 10, fill=colour, stroke="#bbbbbb", stroke_width="0.5")
        svg.text(root, x + 19, y, label, 10.5, fill=INK)
        x += 42 + 5.6 * len(label)


def _hatch(root: svg.Node) -> None:
    """The pattern for what is never touched."""
    definitions = svg.node(root, "defs")
    pattern = svg.node(
        definitions, "pattern", id=HATCH, width="6", height="6", patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )  # fmt: skip
    svg.rect(pattern, 0, 0, 6, 6, fill="#ffffff", fill_opacity="0.55")
    svg.line(pattern, 0, 0, 0, 6, stroke=RED, stroke_width="2.2")

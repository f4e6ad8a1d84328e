"""One memory of one function drawn: a rectangle a buffer, over program order and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kgen.virtual.memory import svg
from kgen.virtual.memory.axis import Addresses, Steps
from kgen.virtual.memory.buffers import SPACES, Buffer, Kind
from kgen.virtual.memory.report import FunctionMemory, SpaceMemory, live_curve, where

# Colours that people with any colour vision can tell apart (Okabe and Ito), lightened where text stands on them.
COLOURS: Mapping[Kind, tuple[str, str]] = {
    "loaded": ("#8ecaf0", "filled by DMA or the cube"),
    "stored": ("#f2b84b", "taken away by DMA"),
    "operand": ("#6aa5d8", "dot operand"),
    "accumulator": ("#dd9fc0", "accumulator of the cube"),
    "temporary": ("#86d0b5", "vector value"),
    "scratch": ("#c9c9c9", "scratch of one operation"),
}
INK, FAINT, RED = "#222222", "#8a8a8a", "#c0392b"
HATCH = "untouched"  # id of the pattern that covers what is never touched

BODY = 260.0  # height of the address axis, in pixels
CURVE = 38.0  # of the curve of live bytes
HEAD = 34.0
HEIGHT = HEAD + BODY + CURVE + 16.0


@dataclass(frozen=True)
class Panel:
    """Where a memory is drawn."""

    function: FunctionMemory
    memory: SpaceMemory
    steps: Steps
    axis: Addresses

    @staticmethod
    def of(function: FunctionMemory, memory: SpaceMemory, steps: Steps, top: float) -> Panel:
        """A panel whose upper edge is `top`."""
        return Panel(function, memory, steps, Addresses.of(memory, top + HEAD, BODY))

    def draw(self, root: svg.Node) -> None:
        """Draw it."""
        group = svg.group(root, class_=f"panel {self.memory.space}")
        self._title(group)
        self._frame(group)
        turns = {b.name: turn for g in self._groups() for b, turn in zip(g, "ABCDEFGH", strict=False)}
        for buffer in self.memory.buffers:
            for begin, end in buffer.ranges:
                self._buffer(group, buffer, begin, end, turns.get(buffer.name, ""))
        for buffer in self.memory.buffers:
            for begin, end in buffer.ranges:
                self._label(group, buffer, begin, end, turns.get(buffer.name, ""))
        self._capacity(group)
        self._reserved(group)
        self._peak(group)
        self._curve(group)

    def _groups(self) -> list[tuple[Buffer, ...]]:
        return [group for loop in self.function.loop_buffers for group in loop.groups]

    def _title(self, root: svg.Node) -> None:
        memory, y = self.memory, self.axis.top - 16
        svg.text(root, self.steps.left, y, SPACES[memory.space], 13, fill=INK, font_weight="bold")
        share = f" of {memory.capacity_bytes:,}" if memory.capacity_bytes else ""
        percent = f" ({memory.peak_bytes / memory.capacity_bytes:.0%})" if memory.capacity_bytes else ""
        reserved = f"reserved {memory.peak_bytes:,}{share} bytes{percent}"
        live = f"most live {memory.live_bytes:,} bytes at {where(memory.live_place)}{memory.live_operation}"
        svg.text(root, self.steps.left + 38, y, f"{reserved}  ·  {live}", 11, fill=INK)

    def _frame(self, root: svg.Node) -> None:
        left, right, axis = self.steps.left, self.steps.right, self.axis
        svg.rect(root, left, axis.top, right - left, axis.bottom - axis.top, fill="#fafafa")
        for address in axis.ticks(self.memory.peak_bytes):
            y = axis.y(address)
            svg.line(root, left, y, right, y, stroke="#e4e4e4")
            svg.text(root, left - 6, y + 3.5, size(address), 10, fill=FAINT, text_anchor="end")
        svg.line(root, left, axis.top, left, axis.bottom, stroke=FAINT)
        if axis.broken and self.memory.capacity_bytes:
            y = axis.top + (axis.y(self.memory.peak_bytes) - axis.top) / 2
            zigzag = [(left - 5, y + 3), (left - 2, y - 3), (left + 2, y + 3), (left + 5, y - 3)]
            svg.path(root, zigzag, fill="none", stroke=FAINT)

    def _buffer(self, root: svg.Node, buffer: Buffer, begin: int, end: int, turn: str) -> None:
        if buffer.first is None or buffer.last is None:
            return
        x, y = self.steps.start(buffer.first), self.axis.y(end)
        width, height = self.steps.stop(buffer.last) - x, max(1.0, self.axis.y(begin) - y)
        node = svg.group(root, class_="buffer", data_name=buffer.name, data_address=str(begin))
        svg.tooltip(node, describe(buffer, begin, turn))
        edge = {"stroke": "#ffffff", "stroke_width": "0.7"} if height > 4 else {}
        svg.rect(node, x, y, width, height, fill=COLOURS[buffer.kind][0], **edge)
        if buffer.wasted_bytes:
            untouched = height * buffer.wasted_bytes / buffer.bytes
            svg.rect(node, x, y, width, untouched, fill=f"url(#{HATCH})")

    def _label(self, root: svg.Node, buffer: Buffer, begin: int, end: int, turn: str) -> None:
        """Shape and type, where there is room for them."""
        label = buffer.type + (f" · {turn}" if turn else "")
        height = self.axis.y(begin) - self.axis.y(end)
        letter = 9.5 if height >= 11 else 8
        needed = 0.56 * letter * len(label) + 6
        if height < 8.5 or buffer.first is None or buffer.last is None:
            return
        left, right = self.steps.start(buffer.first), self.steps.stop(buffer.last)
        if right - left < needed:
            return
        right = min([right, *(self.steps.start(other.first or 0) for other in self._over(buffer))])
        if right - left >= needed:
            y = self.axis.y(end) + height / 2 + 0.35 * letter
            svg.text(root, (left + right) / 2, y, label, letter, fill=INK, text_anchor="middle", pointer_events="none")

    def _over(self, buffer: Buffer) -> list[Buffer]:
        """What is drawn over a part of a buffer: the last operation on one may begin the next in its place."""
        first, last = buffer.first or 0, buffer.last or 0
        later = (o for o in self.memory.buffers if o.first is not None and first < o.first <= last)
        return [other for other in later if other.overlaps(buffer)]

    def _capacity(self, root: svg.Node) -> None:
        capacity, left, right = self.memory.capacity_bytes, self.steps.left, self.steps.right
        if capacity is None:
            return
        y = self.axis.top if self.axis.broken else self.axis.y(capacity)
        svg.line(root, left, y, right, y, class_="capacity", stroke=RED, stroke_width="2")
        label = f"capacity {size(capacity)}{', axis broken' if self.axis.broken else ''}"
        svg.text(root, right, y - 4, label, 10, fill=RED, text_anchor="end")

    def _reserved(self, root: svg.Node) -> None:
        y, left, right = self.axis.y(self.memory.peak_bytes), self.steps.left, self.steps.right
        style = {"stroke": INK, "stroke_dasharray": "5 3", "stroke_width": "0.8"}
        svg.line(root, left, y, right, y, class_="reserved", **style)
        if y - self.axis.top > 14:
            svg.text(root, right, y - 4, f"reserved {size(self.memory.peak_bytes)}", 10, fill=INK, text_anchor="end")

    def _peak(self, root: svg.Node) -> None:
        """A line through the panel and the curve where most bytes live."""
        if self.memory.live_position is None:
            return
        x = (self.steps.start(self.memory.live_position) + self.steps.stop(self.memory.live_position)) / 2
        style = {"stroke": INK, "stroke_width": "1", "stroke_dasharray": "2 2"}
        svg.line(root, x, self.axis.top, x, self.axis.bottom + CURVE + 6, class_="peak", **style)
        svg.path(root, [(x - 5, self.axis.top - 7), (x + 5, self.axis.top - 7), (x, self.axis.top)], fill=INK)

    def _curve(self, root: svg.Node) -> None:
        """Live bytes over the program, from nothing to the most."""
        base, most = self.axis.bottom + 6 + CURVE, max(1, self.memory.live_bytes)
        points, y = [(self.steps.left, base)], base
        # Of several positions between two steps the last one counts.
        for x, live in {self.steps.start(position): live for position, live in live_curve(self.memory.buffers)}.items():
            points.append((x, y))
            y = base - CURVE * live / most
            points.append((x, y))
        points += [(self.steps.right, y), (self.steps.right, base)]
        svg.path(root, points, class_="live", fill="#b9bec6", stroke="#7c838d", stroke_width="0.6")
        svg.text(root, self.steps.left - 6, base, "live", 10, fill=FAINT, text_anchor="end")


def describe(buffer: Buffer, address: int, turn: str) -> str:
    """A buffer for people, a fact a line."""
    lines = [
        f"{buffer.type}, {COLOURS[buffer.kind][1]}",
        f"{SPACES[buffer.space]} {address:,} to {address + buffer.bytes:,}: {buffer.bytes:,} bytes",
        f"operations {buffer.first} to {buffer.last}",
        f"{where(buffer.place)}line {buffer.line} of the IR, {buffer.name}",
    ]
    if turn:
        lines.append(f"double buffering: turn {turn}")
    if buffer.wasted_bytes:
        lines.append(f"{buffer.wasted_bytes:,} bytes never touched")
    return "\n".join(lines)


def size(count: int) -> str:
    """Bytes in short."""
    if count >= 1024:
        return f"{count / 1024:.1f}".removesuffix(".0") + " KiB"
    return f"{count} B"

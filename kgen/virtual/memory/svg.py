"""The few SVG elements that pictures are made of. Numbers are rounded so that equal pictures are equal bytes."""

from __future__ import annotations

from xml.etree import ElementTree

from kgen.errors import printable

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
Node = ElementTree.Element


def document(width: float, height: float, title: str) -> Node:
    """An empty picture on white."""
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {number(width)} {number(height)}",
            "width": number(width),
            "height": number(height),
            "font-family": FONT,
            "role": "img",
        },
    )
    tooltip(root, title)
    rect(root, 0, 0, width, height, fill="#ffffff")
    return root


def text(parent: Node, x: float, y: float, content: str, size: float = 11, **style: str) -> Node:
    """A line of text; `y` is its baseline."""
    return _element(parent, "text", {"x": number(x), "y": number(y), "font-size": number(size)}, style, content)


def rect(parent: Node, x: float, y: float, width: float, height: float, **style: str) -> Node:
    """A rectangle from its upper left corner."""
    size = {"x": number(x), "y": number(y), "width": number(width), "height": number(height)}
    return _element(parent, "rect", size, style)


def line(parent: Node, x1: float, y1: float, x2: float, y2: float, **style: str) -> Node:
    """A straight line."""
    return _element(parent, "line", {"x1": number(x1), "y1": number(y1), "x2": number(x2), "y2": number(y2)}, style)


def path(parent: Node, points: list[tuple[float, float]], **style: str) -> Node:
    """A polyline; it is closed by the fill."""
    d = "M" + "L".join(f"{number(x)},{number(y)}" for x, y in points)
    return _element(parent, "path", {"d": d}, style)


def group(parent: Node, **style: str) -> Node:
    """A group whose style its elements have."""
    return _element(parent, "g", {}, style)


def node(parent: Node, name: str, **attributes: str) -> Node:
    """Any other element."""
    return ElementTree.SubElement(parent, name, attributes)


def tooltip(node: Node, content: str) -> None:
    """What a viewer shows when the pointer rests on an element."""
    ElementTree.SubElement(node, "title").text = printable(content, "\n")


def render(root: Node) -> str:
    """The picture as text."""
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def number(value: float) -> str:
    """A number with at most two places."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _element(parent: Node, name: str, attributes: dict[str, str], style: dict[str, str], content: str = "") -> Node:
    """An element; underscores in style names stand for dashes."""
    attributes |= {key.strip("_").replace("_", "-"): printable(value) for key, value in style.items()}
    node = ElementTree.SubElement(parent, name, attributes)
    if content:
        node.text = printable(content)
    return node

"""The recorded plan, `plan.json`: which tiles each variant has, what they cost in memory, and which lost.

Written by `kgen plan` only. A build reads it and treats it as it does a spec: every field is checked, nothing is
evaluated. Memory expressions are stored as trees, never as text, so that printing one can't smuggle source.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt, TypeAdapter, ValidationError

from kgen.errors import KgenError, Location
from kgen.spec.models import Identifier, Model, Text

SCHEMA: Literal[1] = 1
MAX_BYTES = 8 << 20
MAX_TREE_NODES = 2000  # of one expression; kgen's own have about 50
MAX_TREE_DEPTH = 64
MAX_INTEGER = 1 << 40
OPERATORS = ("+", "*", "max", "min", "ceildiv")

Tiles = dict[Identifier, Annotated[StrictInt, Field(ge=16, le=1024)]]
Bits = Literal["16", "32"]
Verdict = Literal["fits", "degraded", "overflows", "error", "timeout", "predicted"]


class Rejected(Model):
    """A candidate that lost, and why. `admitted`: the expressions let it through, so a search may still try it."""

    tiles: Tiles
    reason: Text
    admitted: StrictBool = False
    ub_predicted_bytes: Annotated[StrictInt, Field(ge=0)] = 0


class Entry(Model):
    """One row of the plan: a kernel on a target at an operand width, chunk and bucket of widths."""

    kernel: Identifier
    target: Identifier
    bits: Literal[16, 32]
    chunk: Annotated[StrictInt, Field(ge=16, le=256)]
    widths: dict[Identifier, Annotated[StrictInt, Field(ge=1, le=65536)]]
    tiles: Tiles
    verdict: Verdict
    grid: Text
    tail_modes: tuple[Literal[0, 1, 2], ...]
    ub_predicted_bytes: Annotated[StrictInt, Field(ge=0)]
    ub_bytes: Annotated[StrictInt, Field(ge=0)] | None = None
    l1_bytes: Annotated[StrictInt, Field(ge=0)] | None = None
    l0c_bytes: Annotated[StrictInt, Field(ge=0)] | None = None
    rejected: tuple[Rejected, ...] = ()


class Expressions(Model):
    """Bytes of a kernel's memories in tile sizes and the chunk, for one width of operands.

    `_sum`: everything side by side; the others: the largest live sum over program points.
    """

    ub_sum: list[object] | int | str
    ub: list[object] | int | str
    l1_sum: list[object] | int | str
    l1: list[object] | int | str
    l0c_sum: list[object] | int | str
    l0c: list[object] | int | str


class Plan(Model):
    """The whole record. `inputs` hashes what the plan was made from."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Annotated[Literal[1], Field(alias="schema")] = SCHEMA
    operator: Identifier
    inputs: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    toolchain: dict[Identifier, Text] = Field(default_factory=dict)
    margin: Annotated[float, Field(ge=0, lt=1)]
    expressions: dict[Identifier, dict[Bits, Expressions]] = Field(default_factory=dict)
    entries: tuple[Entry, ...] = ()


_ADAPTER = TypeAdapter(Plan)


def load_plan(path: Path) -> Plan | None:
    """The plan beside a generated package, or None where there is none. A broken one is an error, never a guess."""
    try:
        if not path.is_file():
            return None
        if path.is_symlink():  # in a stranger's change it could lead to any file
            raise broken(path, "it is a link")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise broken(path, error.strerror or "unreadable") from None
    if len(data) > MAX_BYTES:
        raise broken(path, f"larger than {MAX_BYTES} bytes")
    try:
        plan = _ADAPTER.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(p) for p in first["loc"])
        raise broken(path, f"{where or 'the file'}: {first['msg']}") from None
    except RecursionError:
        raise broken(path, "nested too deeply") from None
    for name, widths in plan.expressions.items():
        for bits, expressions in widths.items():
            for memory in Expressions.model_fields:
                check_tree(getattr(expressions, memory), path, f"expressions.{name}.{bits}.{memory}")
    return plan


def broken(path: Path, why: str, what: str = "can't be used") -> KgenError:
    """A record that nothing may be made from. Planning anew needs --force: without it the record is read first."""
    return KgenError(
        f"the recorded plan {what}: {why[:300]}",
        code="plan-broken",
        location=Location(str(path)),
        hint="make it anew with `kgen plan SPEC --force`, or delete it",
    )


def check_tree(tree: object, path: Path, where: str, depth: int = 0) -> int:
    """An expression is an integer, an identifier, or an operator over expressions, nothing else; its size in nodes."""
    if depth > MAX_TREE_DEPTH:
        raise broken(path, f"{where} is nested too deeply")
    if isinstance(tree, bool) or not isinstance(tree, (int, str, list, tuple)):
        raise broken(path, f"{where} holds {type(tree).__name__}")
    if isinstance(tree, int) and not 0 <= tree <= MAX_INTEGER:
        raise broken(path, f"{where} holds a number that isn't from 0 to {MAX_INTEGER}")
    if isinstance(tree, str) and not (tree.isascii() and tree.isidentifier() and len(tree) <= 16):
        raise broken(path, f"{where} holds {tree[:40]!r}, which isn't a symbol")
    if isinstance(tree, (list, tuple)):
        if len(tree) < 2 or tree[0] not in OPERATORS:
            raise broken(path, f"{where} holds an unknown operator")
        if tree[0] == "ceildiv" and not (len(tree) == 3 and isinstance(tree[2], int) and tree[2] > 0):
            raise broken(path, f"{where} holds a ceildiv that isn't of two, the second a number above 0")
        size = 1
        for part in tree[1:]:
            size += check_tree(part, path, where, depth + 1)
            if size > MAX_TREE_NODES:
                raise broken(path, f"{where} is larger than {MAX_TREE_NODES} terms")
        return size
    return 1


def dump_plan(plan: Plan) -> str:
    """The plan as JSON that reads well in a diff: one entry a line."""
    data = plan.model_dump(mode="json", by_alias=True)
    entries = data.pop("entries")
    head = json.dumps(data, indent=1, sort_keys=False)
    rows = ",\n".join("  " + json.dumps(e, sort_keys=False) for e in entries)
    return head[: head.rindex("\n}")] + ',\n "entries": [\n' + rows + "\n ]\n}\n"


def tree_value(tree: object, values: dict[str, int]) -> int:
    """An expression tree at given sizes."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values[tree]
    assert isinstance(tree, (list, tuple))
    parts = [tree_value(p, values) for p in tree[1:]]
    if tree[0] == "ceildiv":
        return -(-parts[0] // parts[1])
    if tree[0] == "*":
        return math.prod(parts)
    return sum(parts) if tree[0] == "+" else max(parts) if tree[0] == "max" else min(parts)


def tree_source(tree: object) -> str:
    """An expression tree as Python source; the tree has been checked."""
    if isinstance(tree, (int, str)):
        return str(tree)
    assert isinstance(tree, (list, tuple))
    if tree[0] in ("max", "min"):
        return f"{tree[0]}({', '.join(tree_source(p) for p in tree[1:])})"
    # each part is printed once: twice a level would take 2^depth steps
    parts = [tree_source(p) if tree[0] == "+" else _grouped(p) for p in tree[1:]]
    return f"-(-{parts[0]} // {parts[1]})" if tree[0] == "ceildiv" else f" {tree[0]} ".join(parts)


def _grouped(tree: object) -> str:
    text = tree_source(tree)
    return f"({text})" if isinstance(tree, (list, tuple)) and tree[0] in ("+", "ceildiv") else text

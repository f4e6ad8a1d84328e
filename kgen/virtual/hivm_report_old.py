"""A light reader of the final HIVM IR: what it puts on chip and what it calls.

The final IR is the text that `bishengir-compile` hands to `hivmc`: one function for the cube core (`_mix_aic`), one for
the vector core (`_mix_aiv`), or a single one. Every on-chip buffer is a `hivm.hir.pointer_cast` of a constant byte
address, so the peak of a memory space is the largest address plus size. Nothing unknown is passed over: a memory space,
an element type or an address form that this reader has not met is a `KgenBug`, since a wrong peak looks like a right
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kgen.errors import KgenBug

CALL_CLASSES = ("vector", "mte2", "mte3", "nd2nz", "mma", "fixpipe", "barrier", "sync")

# Bits an element takes on chip; i1 is packed, one bit an element (seen in vcmp results).
_ELEMENT_BITS: Mapping[str, int] = {
    "i1": 1, "i4": 4, "i8": 8, "ui8": 8, "si8": 8, "f8E4M3FN": 8, "f8E5M2": 8, "i16": 16, "ui16": 16, "si16": 16,
    "f16": 16, "bf16": 16, "i32": 32, "ui32": 32, "si32": 32, "f32": 32, "i64": 64, "ui64": 64, "si64": 64, "f64": 64,
    "index": 64,
}  # fmt: skip
_SPACES = frozenset({"gm", "ub", "cbuf", "cc", "ca", "cb"})
_GRANULE_BITS = 256  # UB and L1 are allocated in blocks of 32 bytes (target spec: UB_ALIGN_SIZE, L1_ALIGN_SIZE)

# Template calls by the unit that runs them; the first prefix that matches decides.
_CALL_PREFIXES = (
    ("load_gm_to_", "mte2"), ("copy_gm_to_", "mte2"), ("set_l1_", "mte2"), ("nd2nz", "nd2nz"),
    ("store_ubuf_to_gm", "mte3"), ("copy_ubuf_to_gm", "mte3"), ("copy_ubuf_to_cbuf", "mte3"),
    ("mma", "mma"), ("batch_mma", "mma"), ("fixpipe", "fixpipe"),
)  # fmt: skip
_SYNC_OPS = frozenset({"set_flag", "wait_flag", "sync_block_set", "sync_block_wait", "sync_block"})


@dataclass(frozen=True)
class MemRef:
    """One `memref<...>` type; a dynamic dimension or stride is None, sizes count elements."""

    shape: tuple[int | None, ...]
    element: str
    space: str | None
    strides: tuple[int | None, ...] | None = None

    @property
    def element_bits(self) -> int:
        """Width of one element in bits."""
        if self.element not in _ELEMENT_BITS:
            raise KgenBug(f"final HIVM IR holds the element type {self.element!r}, whose width kgen does not know")
        return _ELEMENT_BITS[self.element]

    def span(self, shape: tuple[int, ...]) -> int:
        """Elements from the first to one past the last, for a shape with every dimension known."""
        if 0 in shape:
            return 0
        strides = self.strides
        if strides is None:
            count = 1
            for size in shape:
                count *= size
            return count
        steps = [(size - 1, step) for size, step in zip(shape, strides, strict=True) if size > 1]
        if any(step is None for _, step in steps):
            raise KgenBug(f"an on-chip buffer has a dynamic stride: {self}")
        return 1 + sum(last * step for last, step in steps if step is not None)


@dataclass
class FunctionReport:
    """One device function: peak bytes of each on-chip space, call counts by class, and how it is split."""

    name: str
    core: str  # "aic" (cube) or "aiv" (vector)
    mixed: bool  # one half of a kernel that has a cube and a vector function
    peak_bytes: dict[str, int] = field(default_factory=dict)  # keys: ub, cbuf, cc
    calls: dict[str, int] = field(default_factory=dict)
    one_vector_core: bool = False  # the work is not divided over the two vector cores of a block


@dataclass(frozen=True)
class HivmReport:
    """All device functions of one compiled kernel."""

    functions: tuple[FunctionReport, ...]

    def peak(self, space: str) -> int:
        """Peak bytes of a space (`ub`, `cbuf` for L1, `cc` for L0C) over the functions."""
        return max((f.peak_bytes.get(space, 0) for f in self.functions), default=0)

    def calls(self) -> dict[str, int]:
        """Call sites by class, summed over the functions; a call in a loop counts once."""
        return {key: sum(function.calls.get(key, 0) for function in self.functions) for key in CALL_CLASSES}

    def idle_vector_core(self) -> bool | None:
        """Whether a mixed kernel leaves one of its two vector cores idle; None where there is no such split."""
        halves = [f for f in self.functions if f.mixed and f.core == "aiv" and any(f.calls.values())]
        return any(f.one_vector_core for f in halves) if halves else None


def parse_memref(text: str, start: int = 0) -> tuple[MemRef, int]:
    """Read the `memref<...>` at `start`; returns it with the position just after its closing bracket."""
    opening = "memref<"
    if not text.startswith(opening, start):
        raise KgenBug(f"expected a memref type in the final HIVM IR at {text[start : start + 60]!r}")
    end = _closing(text, start + len(opening) - 1)
    parts = _split_top(text[start + len(opening) : end])
    shape, element = _shape_and_element(parts[0])
    space: str | None = None
    strides: tuple[int | None, ...] | None = None
    for part in parts[1:]:
        if part.startswith("#hivm.address_space<"):
            space = part[len("#hivm.address_space<") : -1]
            if space not in _SPACES:
                raise KgenBug(f"final HIVM IR holds the memory space {space!r}, which kgen does not know")
        elif part.startswith("strided<"):
            listed = part[part.index("[") + 1 : part.index("]")]
            strides = tuple(_integer_or_dynamic(item) for item in listed.split(",") if item.strip())
        elif not part.startswith(("#map", "affine_map<")):
            raise KgenBug(f"final HIVM IR holds the memref layout {part!r}, which kgen does not know")
    return MemRef(shape, element, space, strides), end + 1


def read_hivm(text: str) -> HivmReport:
    """Read the final IR of one kernel."""
    blocks = list(_functions(text))
    vector_functions = {name for name, header, _ in blocks if "hivm.vector_function" in header}
    reports = [
        _function_report(name, header, body, vector_functions)
        for name, header, body in blocks
        if name not in vector_functions and "hacc.function_kind<HOST>" not in header
    ]
    if not reports:
        raise KgenBug("the final HIVM IR holds no device function")
    return HivmReport(tuple(reports))


def _functions(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, header line and body lines of each function that has a body."""
    header: str | None = None
    name = ""
    body: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("func.func "):
            match = re.match(r"func\.func (?:private |public )?@([\w.$-]+)\(", stripped)
            if not match:
                raise KgenBug(f"cannot read the function header {stripped[:120]!r}")
            if header is not None:
                yield name, header, body
            # A declaration ends without an opening brace; its name is not a device function.
            header, name, body = (stripped, match[1], []) if stripped.endswith("{") else (None, "", [])
        elif header is not None:
            body.append(stripped)
    if header is not None:
        yield name, header, body


def _function_report(name: str, header: str, body: list[str], vector_functions: set[str]) -> FunctionReport:
    """Peaks and counts of one device function."""
    core = re.search(r"hivm\.func_core_type<(AIC|AIV)>", header)
    if not core:
        raise KgenBug(f"function {name} of the final HIVM IR does not say which core runs it")
    report = FunctionReport(name, core[1].lower(), "hivm.part_of_mix" in header)
    constants: dict[str, int] = {}
    report.one_vector_core = _undivided(body)
    for line in body:
        result, _, operation = line.partition(" = ") if line.startswith("%") else ("", "", line)
        if constant := _integer_constant(operation):
            constants[result] = int(constant)
        elif operation.startswith("hivm.hir.pointer_cast"):
            space, top = _buffer_end(operation, constants)
            report.peak_bytes[space] = max(report.peak_bytes.get(space, 0), top)
        elif kind := _call_class(operation, report.core, vector_functions):
            report.calls[kind] = report.calls.get(kind, 0) + 1
    return report


def _undivided(body: Sequence[str]) -> bool:
    """Whether the function never uses its vector core's number (0 or 1) to choose a part of the work.

    Where the split is lost, the number is absent or only compared with zero: a guard round the stores (the compiler
    for the 950) or round everything (`limit_sub_block_id0`, the one for A2 and A3).
    """
    if any("limit_sub_block_id0" in line for line in body):
        return True
    numbers: set[str] = set()
    for line in body:
        result, _, operation = line.partition(" = ")
        if operation.startswith("hivm.hir.get_sub_block_idx"):
            numbers.add(result)
        elif numbers.intersection(re.findall(r"%[\w$.#-]+", operation)):
            if re.match(
                r"(arith\.(index_cast|trunci|extsi|extui)|llvm\.(trunc|sext|zext)|builtin\.unrealized_)", operation
            ):
                numbers.add(result)
            elif not re.match(r'(arith\.cmpi eq|llvm\.icmp "eq")', operation):
                return False
    return True


def _integer_constant(operation: str) -> str | None:
    """The digits of an integer constant: `arith.constant 4 : i64`, or `llvm.mlir.constant(4 : i64) : i64` (A5)."""
    match = re.match(r"(?:arith\.constant |llvm\.mlir\.constant\()(-?\d+) : (?:i\d+|index)\b", operation)
    return match[1] if match else None


def _buffer_end(operation: str, constants: Mapping[str, int]) -> tuple[str, int]:
    """Space and byte one past the end of the buffer that a `pointer_cast` names (the highest of its addresses)."""
    opening = operation.index("(")
    closing = _closing(operation, opening)
    addresses = [_resolve(item, constants, operation) for item in _split_top(operation[opening + 1 : closing])]
    dynamic = re.match(r"\s*\[(.*?)\]", operation[closing + 1 :])
    memref, _ = parse_memref(operation, operation.index("memref<", closing))
    if memref.space is None:
        raise KgenBug(f"a buffer without a memory space: {operation!r}")
    sizes = [_resolve(item, constants, operation) for item in _split_top(dynamic[1])] if dynamic else []
    shape = tuple(sizes.pop(0) if size is None else size for size in memref.shape)
    bits = memref.span(shape) * memref.element_bits
    size_bytes = -(-bits // _GRANULE_BITS) * _GRANULE_BITS // 8
    return memref.space, max(addresses) + size_bytes


def _resolve(operand: str, constants: Mapping[str, int], operation: str) -> int:
    """The value of an SSA name that must be a constant."""
    name = operand.split(":", maxsplit=1)[0].strip()
    if name not in constants:
        raise KgenBug(f"{name} is not a constant, so the place of a buffer is unknown: {operation!r}")
    return constants[name]


def _call_class(operation: str, core: str, vector_functions: set[str]) -> str | None:
    """The class of a call or synchronisation operation, or None for the rest."""
    hir = re.match(r"hivm\.hir\.(\w+)", operation)
    if hir:
        name = hir[1]
        if name == "pipe_barrier":
            return "barrier"
        if name in _SYNC_OPS:
            return "sync"
        if "memref<" in operation:
            raise KgenBug(
                f"hivm.hir.{name} moves memory in the final HIVM IR and kgen does not know which unit runs it"
            )
        return None
    call = re.match(r"(?:func\.)?call @([\w.$-]+)\(", operation)
    if not call:
        return None
    name = call[1].removeprefix("_mlir_ciface_")
    if name in vector_functions:
        return "vector"
    for prefix, kind in _CALL_PREFIXES:
        if name.startswith(prefix):
            return kind
    if core == "aiv":
        return "vector"
    raise KgenBug(f"the cube core calls {name!r} and kgen does not know which unit runs it")


def _shape_and_element(text: str) -> tuple[tuple[int | None, ...], str]:
    """Split `64x?xf32` at its dimensions; the element may itself hold an `x` (`index`)."""
    shape: list[int | None] = []
    rest = text.strip()
    while match := re.match(r"(\d+|\?)x", rest):
        shape.append(_integer_or_dynamic(match[1]))
        rest = rest[match.end() :]
    return tuple(shape), rest


def _integer_or_dynamic(text: str) -> int | None:
    """An integer, or None for `?`."""
    return None if text.strip() == "?" else int(text)


_BRACKETS = {"<": ">", "(": ")", "[": "]", "{": "}"}


def _closing(text: str, opening: int) -> int:
    """Position of the bracket that closes the one at `opening`; the `>` of an arrow is no bracket."""
    stack: list[str] = []
    for position in range(opening, len(text)):
        char = text[position]
        if char in _BRACKETS:
            stack.append(_BRACKETS[char])
        elif char == ">" and text[position - 1] == "-":
            continue
        elif stack and char == stack[-1]:
            stack.pop()
            if not stack:
                return position
    raise KgenBug(f"unbalanced brackets in the final HIVM IR: {text[opening : opening + 120]!r}")


def _split_top(text: str) -> list[str]:
    """Split at the commas that stand outside every bracket."""
    parts: list[str] = []
    position = start = 0
    while position < len(text):
        char = text[position]
        if char in _BRACKETS:
            position = _closing(text, position)
        elif char == ",":
            parts.append(text[start:position].strip())
            start = position + 1
        position += 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts

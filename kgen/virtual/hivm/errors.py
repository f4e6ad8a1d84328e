"""What goes wrong when the final IR is read."""

from __future__ import annotations

from kgen.errors import KgenError

_MOST = 300  # characters of a message


class HivmError(KgenError):
    """The final IR isn't what this reader knows: another compiler version, or a file that isn't one."""

    def __init__(self, message: str, line: int | None = None) -> None:
        """`line` counts from 1 in the IR's text."""
        message = message if len(message) <= _MOST else f"{message[:_MOST]}…"  # it may quote the text
        self.line = line
        self.unplaced = message
        where = f"line {line}: " if line is not None else ""
        super().__init__(
            f"{where}{message}",
            code="hivm-unknown",
            hint="kgen reads the IR of ascendnpu-ir 1.2.0; `kgen doctor` shows which compiler is in use",
        )

    def placed(self, line: int) -> HivmError:
        """The same with its line, if it has none yet."""
        return self if self.line is not None else HivmError(self.unplaced, line)


class UnexpectedError(HivmError):
    """Another token than what an operation's form has: the operation may have a form that isn't known."""

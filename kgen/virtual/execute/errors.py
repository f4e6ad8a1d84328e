"""What stops an execution."""

from __future__ import annotations

from kgen.errors import KgenError


class ExecutionError(KgenError):
    """The compiled kernel does what no kernel may, or what isn't known here."""

    def __init__(self, message: str, *, code: str = "execute", hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint or "look at the compiled IR with `kgen trace`")

    def during(self, callee: str) -> ExecutionError:
        """The same error with the template that met it."""
        return ExecutionError(f"@{callee}: {self.message}", code=self.code, hint=self.hint)

"""What every pass may know beside the kernel: the spec's facts about its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.spec.models import Dim, DimKind, Kernel, Spec, Tensor


@dataclass(frozen=True)
class Context:
    """The spec seen from one kernel: tensors by the program's parameter names."""

    spec: Spec
    name: str

    @property
    def entry(self) -> Kernel:
        return self.spec.kernels[self.name]

    def tensor(self, param: str) -> Tensor:
        return self.spec.tensors[self.entry.bind.get(param, param)]

    def optional(self, param: str) -> bool:
        return self.tensor(param).optional and param not in self.entry.given

    def dtypes(self, param: str) -> tuple[str, ...]:
        """The element types that the parameter may be stored in."""
        dtype = self.tensor(param).dtype
        return self.spec.dtypes.get(dtype, (dtype,))

    def always_fp32(self, param: str) -> bool:
        return self.dtypes(param) == ("fp32",)

    def dim(self, name: str) -> Dim:
        return self.spec.dims[name]

    def kind(self, name: str) -> DimKind:
        return self.spec.dims[name].kind

    def one(self, kind: DimKind) -> str:
        """The name of the only dim of a kind (`T` for rows, `BT` for chunk …)."""
        return self.spec.one(kind)

    def program_dims(self, param: str) -> tuple[str, ...]:
        """The tensor's dims without the head, as a program indexes them."""
        return tuple(d for d in self.tensor(param).dims if self.kind(d) is not DimKind.HEADS)

"""How far a result is from its reference: one number that a tolerance of the spec bounds."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rel_rms(x: Tensor, reference: Tensor) -> float:
    """rms(x - ref) / rms(ref), in fp64; shapes must agree.

    Nothing to compare is 0. Against an all-zero reference only zeros are right, else infinity. A NaN or an infinity
    that the reference doesn't have is infinity too, so that no comparison with a tolerance can let it pass.
    """
    actual, expected = _pair(x, reference)
    if actual.numel() == 0 or torch.equal(actual, expected):
        return 0.0
    difference = (actual - expected).square().mean().sqrt().item()
    size = expected.square().mean().sqrt().item()
    ratio = difference / size if size else math.inf
    return ratio if math.isfinite(ratio) else math.inf


def max_abs(x: Tensor, reference: Tensor) -> float:
    """The largest |x - ref|, in fp64; 0 for empty tensors, infinity where either has a NaN."""
    actual, expected = _pair(x, reference)
    if actual.numel() == 0 or torch.equal(actual, expected):
        return 0.0
    largest = (actual - expected).abs().max().item()
    return largest if math.isfinite(largest) else math.inf


def _pair(x: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    if x.shape != reference.shape:
        raise ValueError(f"shapes differ: {tuple(x.shape)} and {tuple(reference.shape)}")
    return x.detach().double().cpu(), reference.detach().double().cpu()

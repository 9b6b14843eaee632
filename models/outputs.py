"""The family of sums of block outputs: h_j = sum_{i<=j} s_ij v_i, with v_0 = x and v_i what came out of block i.

Hyper-connections, attention over depth, DenseFormer and scaled branches have this in common, and no more: each carries
out its own sum. Weighted sums of states (`models/mixing.py`) are another family: there F_j's own output has weight 1.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from models.stack import Returns, Topology
from models.topology.base import InnerResidual, Snapshot

NORM_EPS = 1e-6


def inverse_rms(x: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """1 / sqrt(mean of squares over `dim`), which stay as axes of 1."""
    square = torch.linalg.vector_norm(x, dim=dim, keepdim=True).square()
    count = x.numel() // max(square.numel(), 1)
    return torch.rsqrt(square / count + NORM_EPS)


class Outputs(Topology):
    """One network's sums of outputs."""

    kind: str
    inner_residual: InnerResidual = "drop"  # v_i is what block i adds to its input, or the whole residual block

    @abstractmethod
    def sums(self) -> Tensor | None:
        """s, (K+1, K+1) float32, upper triangular with its diagonal; None where it depends on the input alone."""

    def coefficients(self) -> Tensor | None:
        """s_ij of i < j: the weight of v_i, not of h_i, in step j."""
        sums = self.sums()
        return None if sums is None else sums.triu(1)

    def trained(self) -> Tensor:
        """Which s_ij of i < j are trained, (K+1, K+1) bool."""
        return torch.ones(self.depth + 1, self.depth + 1, dtype=torch.bool).triu(1)

    def snapshot(self) -> Snapshot:
        sums = self.sums()
        return {
            "kind": self.kind,
            "depth": self.depth,
            "rule": "outputs",
            "normalization": "none",
            "temperature": None,
            "inner_residual": self.inner_residual,
            "mask": torch.ones(self.depth + 1, self.depth + 1).triu(1).bool().tolist(),
            "p": None if sums is None else sums.triu(1).tolist(),
            "offset": None,
            "own": None if sums is None else sums.diagonal().tolist(),
            "c": None,
            "trained": self.trained().tolist(),
        }

    def output(self, out: Tensor, h: Tensor, returns: Returns) -> Tensor:
        """v_i, from what the module returned for h."""
        if self.inner_residual == "drop":
            return out - h if returns == "block" else out
        return out if returns == "block" else out + h

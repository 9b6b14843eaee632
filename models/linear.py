"""Deep linear networks with shortcuts: the case study that shows what topology alone can do (paper, section 3).

    x_0 = X,   x_j = W_j x_{j-1} + sum_i p_ij x_i,   loss = 1/2 ||x_K - A||_F^2

on whitened data, X = I. States hold samples in rows, as everywhere else here: they are the paper's matrices transposed.
All is float64: linear rates are followed down to losses of 1e-18.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.linear_spec import LinearSpec
from models.stack import Stack
from models.topology.base import TopologySpec


class LinearNetwork(nn.Module):
    """The network and its target; calling it gives the loss.

    `seed` (below 2^31) fixes A and every W_j, by separate generators: every depth and topology has the same target.

    Raises:
        ValueError: the topology cannot connect this depth.
    """

    inputs: Tensor
    target: Tensor

    def __init__(self, spec: LinearSpec, topology: TopologySpec, seed: int) -> None:
        super().__init__()
        # Seeds of A end below 2^31, and a generator takes 32 bits of its seed: no W repeats the numbers of any A.
        weights = torch.Generator().manual_seed(2**31 + seed)
        blocks = [nn.Linear(spec.width, spec.width, bias=False) for _ in range(spec.depth)]
        self.stack = Stack(blocks, topology, width=spec.width, returns="branch").double()
        for block in blocks:
            nn.init.normal_(block.weight, std=spec.init_std, generator=weights)
        self.register_buffer("inputs", torch.eye(spec.width, dtype=torch.float64), persistent=False)  # X
        self.register_buffer("target", low_rank_target(spec.width, spec.rank, seed).T, persistent=False)  # A

    def forward(self) -> Tensor:
        error: Tensor = self.stack(self.inputs) - self.target  # (d, d)
        return 0.5 * error.square().sum()


def low_rank_target(width: int, rank: int, seed: int) -> Tensor:
    """A = U V / sqrt(d), (d, d) of rank r, with U and V standard Gaussian.

    Source: appendix E.1. The paper gives no scale; this one keeps the singular values of A near sqrt(d).
    """
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(width, rank, dtype=torch.float64, generator=generator)  # U
    right = torch.randn(rank, width, dtype=torch.float64, generator=generator)  # V
    target: Tensor = left @ right / width**0.5
    return target

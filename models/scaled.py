"""Residual blocks whose branches have a learned gain: h_j = h_{j-1} + g_j r_j(h_{j-1})."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.outputs import Outputs
from models.stack import Returns, State


class Scaled(Outputs):
    """`gain` (K, 1) has one number for each block (ReZero), or (K, d) one for each of its features (LayerScale)."""

    def __init__(self, kind: str, depth: int, width: int, start: float) -> None:
        super().__init__()
        self.kind, self.depth = kind, depth
        self.gain = nn.Parameter(torch.full((depth, width), start))

    def sums(self) -> Tensor:
        """g_i in every step from i on, the mean of a block's gains where it has one for each feature."""
        gains = torch.cat((self.gain.new_ones(1), self.gain.mean(1)))
        return gains.unsqueeze(1).expand(-1, self.depth + 1).triu()

    def trained(self) -> Tensor:
        return super().trained() & (torch.arange(self.depth + 1) > 0).unsqueeze(1)  # x has weight 1

    def start(self, x: Tensor, returns: Returns) -> State:
        return Gains(self, x, returns)


class Gains(State):
    def __init__(self, topology: Scaled, x: Tensor, returns: Returns) -> None:
        self.topology, self.returns, self.h = topology, returns, x
        self.gains = iter(topology.gain.unbind())

    def read(self) -> Tensor:
        return self.h

    def write(self, out: Tensor) -> None:
        branch = self.topology.output(out, self.h, self.returns)
        gain = next(self.gains)
        wide = torch.promote_types(self.h.dtype, gain.dtype)
        self.h = torch.addcmul(self.h.to(wide), gain.to(wide), branch.to(wide)).to(self.h.dtype)

    def finish(self) -> Tensor:
        return self.h

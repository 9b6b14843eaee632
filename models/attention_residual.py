"""Attention over depth: what leaves a step is a softmax over all outputs so far, by content (2603.15031).

    h_j = sum_i alpha_ij v_i,   alpha_.j = softmax_i(w_j . rmsnorm(v_i)),   v_0 = x,   w = 0 at the start

Full: v_i = r_i(h_{i-1}). In groups: a v_i of its own for each whole group of blocks, the sum of their outputs, and one
for those of the present group so far. Fewer values are kept and read.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.denseformer import weighted_sum
from models.outputs import Outputs, inverse_rms
from models.stack import Returns, State


class DepthAttention(Outputs):
    """`query` (K, d) holds w_1 .. w_K. Outputs are summed within `groups` groups of blocks; K of them are full."""

    def __init__(self, kind: str, depth: int, width: int, groups: int) -> None:
        super().__init__()
        self.kind, self.depth, self.groups = kind, depth, groups
        self.query = nn.Parameter(torch.zeros(depth, width))

    def continues(self, block: int) -> bool:
        """Whether block 0 .. K-1 is in the group of the one before. Sizes of groups differ by 1 at most."""
        return block > 0 and block * self.groups // self.depth == (block - 1) * self.groups // self.depth

    def sums(self) -> None:
        """Every weight depends on the input."""

    def start(self, x: Tensor, returns: Returns) -> State:
        return Attending(self, x, returns)


class Attending(State):
    def __init__(self, topology: DepthAttention, x: Tensor, returns: Returns) -> None:
        self.topology, self.returns = topology, returns
        self.h, self.step = x, 0
        self.values, self.logits = [x], [self._logits(x)]

    def _logits(self, value: Tensor) -> Tensor:
        """w_j . rmsnorm(v) of all steps at once, (.., K): v is read once, not by every later step."""
        with torch.autocast(value.device.type, enabled=False):
            query = self.topology.query
            wide = value.to(torch.promote_types(value.dtype, query.dtype))
            return (wide @ query.to(wide.dtype).T) * inverse_rms(wide, -1)

    def read(self) -> Tensor:
        return self.h

    def write(self, out: Tensor) -> None:
        value = self.topology.output(out, self.h, self.returns)
        if self.topology.continues(self.step):  # the sum of its group takes the place of the sum so far
            value = self.values.pop() + value
            self.logits.pop()
        self.values.append(value)
        self.logits.append(self._logits(value))
        alpha = torch.stack([logits[..., self.step] for logits in self.logits]).softmax(0)
        self.h = weighted_sum(list(alpha.unsqueeze(-1).unbind()), self.values)
        self.step += 1

    def finish(self) -> Tensor:
        return self.h

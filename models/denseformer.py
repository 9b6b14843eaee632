"""DenseFormer: what leaves a step is a free weighted sum of all blocks' outputs so far (2402.02622).

h_j = sum_{i<=j} a_ij v_i,   v_0 = x,   v_j = B_j(h_{j-1}),   a_jj = 1 and a_ij = 0 at the start
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.outputs import Outputs
from models.stack import Returns, State


class DepthAverage(Outputs):
    """`a` holds a_0j .. a_jj for j = 1..K in one vector."""

    inner_residual = "keep"
    index: Tensor

    def __init__(self, kind: str, depth: int) -> None:
        super().__init__()
        self.kind, self.depth = kind, depth
        index = torch.ones(depth + 1, depth + 1).tril()[1:].nonzero().T.flip(0) + torch.tensor([[0], [1]])
        self.a = nn.Parameter((index[0] == index[1]).float())
        self.register_buffer("index", index, persistent=False)  # (2, K (K + 3) / 2): i and j, step by step

    def sums(self) -> Tensor:
        own = torch.zeros(self.depth + 1, self.depth + 1, dtype=self.a.dtype, device=self.a.device)
        own[0, 0] = 1
        return own.index_put(tuple(self.index.unbind()), self.a)

    def start(self, x: Tensor, returns: Returns) -> State:
        return Averages(self, x, returns)


class Averages(State):
    def __init__(self, topology: DepthAverage, x: Tensor, returns: Returns) -> None:
        self.topology, self.returns = topology, returns
        self.weights = topology.sums().unbind(1)
        self.values, self.h = [x], x

    def read(self) -> Tensor:
        return self.h

    def write(self, out: Tensor) -> None:
        self.values.append(self.topology.output(out, self.h, self.returns))
        weights = self.weights[len(self.values) - 1].unbind()
        self.h = weighted_sum(list(weights), self.values)

    def finish(self) -> Tensor:
        return self.h


def weighted_sum(weights: list[Tensor], values: list[Tensor]) -> Tensor:
    """The first weights times all values, in the first's dtype. Autograd keeps the values, and no sum on the way."""
    dtype = values[0].dtype
    total = weights[0] * values[0].to(torch.promote_types(dtype, weights[0].dtype))
    for weight, value in zip(weights[1:], values[1:], strict=False):
        total = torch.addcmul(total, weight, value)
    return total.to(dtype)

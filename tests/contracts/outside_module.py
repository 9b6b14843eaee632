"""The module of `outside_topology`: written against the interface of `models/stack.py` alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.stack import Returns, State, Topology
from models.topology.base import Snapshot


class RunningAverage(Topology):
    def __init__(self, kind: str, depth: int, start: float) -> None:
        super().__init__()
        self.kind = kind
        self.depth = depth
        self.a = nn.Parameter(torch.full((depth,), start))

    def start(self, x: Tensor, returns: Returns) -> State:
        return _Running(x, self.a, returns)

    def coefficients(self) -> Tensor:
        shares = torch.zeros(self.depth + 1, self.depth + 1)
        shares[0, 1] = 1.0
        for j in range(2, self.depth + 1):
            shares[:, j] = shares[:, j - 1] / 2
            shares[j - 1, j] = 0.5
        return shares * torch.cat([self.a.new_zeros(1), self.a])

    def snapshot(self) -> Snapshot:
        allowed = torch.ones(self.depth + 1, self.depth + 1).triu(1).bool().tolist()
        return {
            "kind": self.kind,
            "depth": self.depth,
            "rule": "free",
            "normalization": "none",
            "temperature": None,
            "inner_residual": "drop",
            "mask": allowed,
            "p": self.coefficients().tolist(),
            "offset": None,
            "c": None,
            "trained": allowed,
        }


class _Running(State):
    def __init__(self, x: Tensor, a: Tensor, returns: Returns) -> None:
        self.h, self.average, self.a, self.returns, self.step = x, x, a, returns, 0

    def read(self) -> Tensor:
        return self.h

    def write(self, out: Tensor) -> None:
        if self.step:
            self.average = (self.average + self.h) / 2
        branch = out - self.h if self.returns == "block" else out
        self.h = branch + self.a[self.step].to(out.dtype) * self.average
        self.step += 1

    def finish(self) -> Tensor:
        return self.h

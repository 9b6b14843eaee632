"""Weighted sums of earlier states: carries out any `Wiring`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from models.stack import Returns, State, Topology
from models.topology.base import Snapshot
from models.wiring import Pair, Wiring


class Mix(Topology):
    """h_j = F_j(h_{j-1}) + sum_{i<j} (p_ij + offset_ij) h_i. The trained numbers are one packed float32 vector, `c`."""

    c: nn.Parameter | None
    weights: Tensor

    def __init__(self, kind: str, wiring: Wiring) -> None:
        super().__init__()
        self.kind = kind
        self.wiring = wiring
        self.depth = wiring.depth
        start = torch.tensor(list(wiring.start.values()), dtype=torch.float32)
        self.c = None if wiring.rule == "constant" else nn.Parameter(start)
        self.register_buffer("weights", self._matrix(wiring.start), persistent=False)

    def _matrix(self, entries: Mapping[Pair, float]) -> Tensor:
        matrix = torch.zeros(self.depth + 1, self.depth + 1)
        for (i, j), value in entries.items():
            matrix[i, j] = value
        return matrix

    def coefficients(self) -> Tensor:
        wiring, c = self.wiring, self.c
        if c is None:
            return self.weights
        index = torch.tensor(list(wiring.start), device=c.device).T
        if wiring.rule == "free":
            return torch.zeros_like(self.weights).index_put((index[0], index[1]), c)
        assert wiring.temperature is not None
        low = torch.full_like(self.weights, torch.finfo(torch.float32).min)
        logits = low.index_put((index[0], index[1]), c / wiring.temperature)
        p = logits.softmax(0 if wiring.normalization == "ingoing" else 1)
        return torch.where(logits > low, p, 0.0)

    def total(self, returns: Returns) -> Tensor:
        p = self.coefficients() + self._matrix(self.wiring.offset).to(self.weights.device)
        shift = (self.wiring.inner_residual == "keep") - (returns == "block")
        return p + shift * torch.ones(self.depth, device=p.device).diag(1)

    def start(self, x: Tensor, returns: Returns) -> State:
        return _Plain(x, self.total(returns))

    def snapshot(self) -> Snapshot:
        wiring = self.wiring
        mask = self._matrix(dict.fromkeys(wiring.start, 1.0)).bool()
        return {
            "kind": self.kind,
            "depth": wiring.depth,
            "rule": wiring.rule,
            "normalization": wiring.normalization,
            "temperature": wiring.temperature,
            "inner_residual": wiring.inner_residual,
            "mask": mask.tolist(),
            "p": self.coefficients().tolist(),
            "offset": self._matrix(wiring.offset).tolist() if wiring.offset else None,
            "c": None if self.c is None else self.c.tolist(),
            "trained": (mask & (wiring.rule != "constant")).tolist(),
        }


class _Plain(State):
    def __init__(self, x: Tensor, weights: Tensor) -> None:
        self.states = [x]
        self.weights = weights

    def read(self) -> Tensor:
        return self.states[-1]

    def write(self, out: Tensor) -> None:
        w = self.weights[: len(self.states), len(self.states)].to(out.dtype)
        for weight, h in zip(w, self.states, strict=True):
            out = out + weight * h
        self.states.append(out)

    def finish(self) -> Tensor:
        return self.states[-1]

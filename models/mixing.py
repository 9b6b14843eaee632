"""Carries out any `Wiring`: from coefficients to weights, and one forward of weighted sums."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from models.history import BLOCK, Enter, Gradients, Recursion, Step
from models.stack import Returns, State, Topology, call
from models.topology.base import Snapshot
from models.wiring import Pair, Wiring


class Mix(Topology):
    """h_j = F_j(h_{j-1}) + sum_{i<j} (p_ij + offset_ij) h_i. All trained numbers are one packed float32 vector, `c`."""

    index: Tensor
    weights: Tensor
    fixed: Tensor

    def __init__(self, kind: str, wiring: Wiring) -> None:
        super().__init__()
        self.kind = kind
        self.wiring = wiring
        self.depth = wiring.depth
        self.edges = wiring.edges
        constant = wiring.rule == "constant"
        start = torch.tensor(list(wiring.start.values()), dtype=torch.float32)
        self.c = None if constant else nn.Parameter(start)  # step by step, source by source
        self.register_buffer(
            "index", torch.tensor(list(wiring.start), dtype=torch.long).view(-1, 2).T, persistent=False
        )
        self.register_buffer("weights", self._matrix(wiring.start if constant else {}), persistent=False)
        self.register_buffer("fixed", self._matrix(wiring.offset), persistent=False)

    def _matrix(self, entries: Mapping[Pair, float]) -> Tensor:
        matrix = torch.zeros(self.depth + 1, self.depth + 1)
        for pair, value in entries.items():
            matrix[pair] = value
        return matrix

    def coefficients(self) -> Tensor:
        """p, (K+1, K+1) float32: equation 7 (ingoing) or 6 (outgoing) over the allowed connections, or c itself."""
        if self.c is None:
            return self.weights
        pairs = self.index.unbind()
        if self.wiring.temperature is None:
            return self.weights.index_put(pairs, self.c)
        lowest = torch.full_like(self.weights, torch.finfo(self.weights.dtype).min)  # exp of -inf less -inf is NaN
        logits = lowest.index_put(pairs, self.c / self.wiring.temperature)
        p = logits.softmax(0 if self.wiring.normalization == "ingoing" else 1)
        return self.weights.index_put(pairs, p[pairs])

    def total(self, returns: Returns) -> Tensor:
        """w, (K+1, K+1): h_j = out_j + sum_{i<j} w_ij h_i for modules that return blocks or branches."""
        w, shift = self.coefficients() + self.fixed, self._shift(returns)
        return w + torch.full_like(w[0, 1:], shift).diag(1) if shift else w

    def _shift(self, returns: Returns) -> float:
        """A block holds h_{j-1} already, a branch does not: what that adds to the weight of the previous state."""
        return float(self.wiring.inner_residual == "keep") - float(returns == "block")

    def _chain(self, returns: Returns) -> list[float] | None:
        """The fixed weights of h_0 .. h_{K-1} in the step after each, where there are no others."""
        if self.c is not None or any(i < j - 1 for i, j in self.wiring.pairs):
            return None
        shift = self._shift(returns)
        return [self.wiring.start.get((j, j + 1), 0.0) + shift for j in range(self.depth)]

    def start(self, x: Tensor, returns: Returns) -> State:
        chain = self._chain(returns)
        if chain is not None:
            return Chain(x, chain)
        return (Terms if torch.compiler.is_compiling() else Weighted)(x, self.total(returns))

    def cut(self, segment: int) -> None:
        self.edges = self.wiring.segments(segment)

    def recompute(self, x: Tensor, returns: Returns, blocks: nn.ModuleList, args: tuple[Any, ...]) -> Tensor:
        """Where there are edges, keep only the states there: backward runs each segment again (appendix D)."""
        if not self.edges:
            return super().recompute(x, returns, blocks, args)
        chain, w, kept = self._chain(returns), self.total(returns), [x]
        for start, stop in pairwise(self.edges):
            segment: tuple[Any, ...]
            if chain is not None:
                segment = run_chain, blocks[start:stop], args, chain[start:stop], kept[-1]
            else:
                inside = w[start + 1 : stop, start + 2 : stop + 1].diagonal()
                from_edges = w[list(self.edges[: len(kept)]), start + 1 : stop + 1]
                segment = run_segment, blocks[start:stop], args, inside, from_edges, *kept
            kept.append(checkpoint(*segment, use_reentrant=False))
        return kept[-1]

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
            "offset": self.fixed.tolist() if wiring.offset else None,
            "own": None,
            "c": None if self.c is None else self.c.tolist(),
            "trained": (mask & (self.c is not None)).tolist(),
        }


def run_chain(blocks: nn.ModuleList, args: tuple[Any, ...], weights: list[float], h: Tensor) -> Tensor:
    """The state at the end of a segment of the cascaded network."""
    state = Chain(h, weights)
    for block in blocks:
        state.write(call(block, state.read(), args))
    return state.finish()


def run_segment(
    blocks: nn.ModuleList, args: tuple[Any, ...], inside: Tensor, from_edges: Tensor, *kept: Tensor
) -> Tensor:
    """The state at the end of a segment, from those at earlier edges, in few operations that autograd knows.

    `inside` (B-1): weights of the previous state after the segment's first step; `from_edges` (len(kept), B).
    """
    h = kept[-1]
    with torch.autocast(h.device.type, enabled=False):
        sums = [*EdgeSums.apply(from_edges, *kept)]  # type: ignore[no-untyped-call]
    for block, weight in zip(blocks, [None, *inside.to(h.dtype)], strict=True):
        out = call(block, h, args) + sums.pop(0)  # its memory is free for the next block
        h = out if weight is None else torch.addcmul(out, weight, h)
    return h


class EdgeSums(torch.autograd.Function):
    """sum_s w_sb h_s for each of the B steps of a segment, from w (S, B) and the states at edges.

    Autograd keeps the states themselves, which are there, and no stack of them.
    """

    @staticmethod
    def forward(ctx: Any, w: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(w, *states)
        stacked, wide = _stack(w, states)
        return tuple((column @ stacked).to(states[0].dtype).view_as(states[0]) for column in w.to(wide).unbind(1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        w, *states = ctx.saved_tensors
        g, wide = _stack(w, gradients)  # (B, D)
        to_w = torch.stack([g @ state.flatten().to(wide) for state in states])
        to_states = ((row @ g).to(state.dtype).view_as(state) for row, state in zip(w.to(wide), states, strict=True))
        return to_w.to(w.dtype), *to_states


def _stack(w: Tensor, states: tuple[Tensor, ...] | list[Tensor]) -> tuple[Tensor, torch.dtype]:
    """Rows of states, in the wider of their dtype and that of their weights."""
    wide = torch.promote_types(states[0].dtype, w.dtype)
    return torch.stack(states).flatten(1).to(wide), wide


class Weighted(State):
    """One forward of h_j = out_j + sum_{i<j} w_ij h_i with w (K+1, K+1): `models/history.py` under autograd."""

    def __init__(self, x: Tensor, weights: Tensor) -> None:
        self.sums = Recursion(weights.detach(), x.shape, x.dtype, BLOCK)
        self.gradients = Gradients(weights, x.shape, x.dtype)
        self.h: Tensor = Enter.apply(x, weights, self.sums, self.gradients)  # type: ignore[no-untyped-call]
        self.step = 0

    def read(self) -> Tensor:
        return self.h

    def write(self, out: Tensor) -> None:
        self.step += 1
        if not self.h.is_inference() and self.h._version:
            raise ValueError(f"block {self.step} changed its input in place, which later steps read")
        self.h = Step.apply(out, self.h, self.step, self.sums, self.gradients)  # type: ignore[no-untyped-call]

    def finish(self) -> Tensor:
        return self.h


class Terms(State):
    """The same term by term: what torch.compile reads, and fuses by itself."""

    def __init__(self, x: Tensor, weights: Tensor) -> None:
        self.states = [x]
        self.weights = weights.unbind(1)

    def read(self) -> Tensor:
        return self.states[-1]

    def write(self, out: Tensor) -> None:
        for weight, h in zip(self.weights[len(self.states)], self.states, strict=False):
            out = out + weight * h
        self.states.append(out.to(self.states[0].dtype))

    def finish(self) -> Tensor:
        return self.states[-1]


class Chain(State):
    """One forward of h_j = out_j + w_j h_{j-1} with fixed w_j: the cascaded network, as autograd does it best."""

    def __init__(self, x: Tensor, weights: list[float]) -> None:
        self.h = x
        self.weights = iter(weights)

    def read(self) -> Tensor:
        return self.h

    def write(self, out: Tensor) -> None:
        weight = next(self.weights)
        self.h = torch.add(out, self.h, alpha=weight) if weight else out

    def finish(self) -> Tensor:
        return self.h

"""The weighted sum over all earlier states, fused: h_j = out_j + sum_{i<j} w_ij h_i, forward and backward.

A term-by-term sum under autograd reads and writes whole states for every term. Here autograd sees one node per step,
and since, with G_j the gradient of h_j,

    G_i = (through block i+1) + sum_{j>i} w_ij G_j,      dL/dw_ij = <h_i, G_j>,

backward is the forward recursion run from the last step to the first, and the gradient of all weights is a few matrix
products. Every h_i receives its true G_i, so hooks and gradients on states in between are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 16  # rows whose sums take in all rows before them at once, in matrix products of at most BLOCK rows
NEAR = 8  # rows that each step reads for itself
FIRST = 4  # rows of the first chunk of memory that grows
PARTS = 16  # parts of a row that processor cores can share: a matrix-vector product alone runs on one
PAD = 64  # numbers between two rows: rows a power of two apart would share cache sets
SLICE = 2**18  # numbers of a half-precision part that are widened at once


class Chunk(NamedTuple):
    """Rows `start` .. `stop` - 1 in one piece of memory, a row for the D numbers of a state."""

    start: int
    stop: int
    states: Tensor  # (R, the shape of a state)
    flat: Tensor  # (R, D)
    parts: Tensor  # (P, R, D / P), with P = PARTS where that divides D, or 1


def rows_in(memory: Tensor, start: int, count: int, shape: torch.Size) -> Chunk:
    """The rows of states of `shape` that begin where `memory` begins."""
    size = shape.numel()
    parts = PARTS if size % PARTS == 0 else 1
    flat = memory.as_strided((count, size), (size + PAD, 1))
    split = memory.as_strided((parts, count, size // parts), (size // parts, size + PAD, 1))
    return Chunk(start, start + count, flat.view(count, *shape), flat, split)


class Recursion:
    """Rows r_0 .. r_{N-1}, each known after those before it, and the sums s_n = sum_{i<n} w_in r_i, n = 1..N.

    Where BLOCK divides n, rows [0, n) are added to the sums of the next BLOCK rows; where only NEAR does, rows
    [n - NEAR, n) to the next NEAR; other n read the rows since then: some NEAR / 2 + N / BLOCK reads of each row.
    """

    def __init__(self, weights: Tensor, shape: torch.Size, dtype: torch.dtype, *, grow: bool) -> None:
        """`weights` (N+1, N+1), upper triangular; states of `shape` and `dtype`; memory at once, or as rows come."""
        self.last = weights.shape[0] - 1
        self.shape, self.dtype = shape, dtype
        self.terms = _terms(weights.T, dtype)
        self.chunks = [self._allocate(0, min(FIRST, self.last) if grow else self.last)]

    def row(self, n: int) -> Tensor:
        """r_n, a row of the newest chunk, in the shape of a state."""
        newest = self.chunks[-1]
        return newest.states[n - newest.start]

    def sum_before(self, n: int) -> Tensor:
        """s_n in the shape of a state: in the memory of row n, which becomes r_n; for n = N in memory of its own."""
        if n == self.last:
            own = self._allocate(n, 1)
            self._add(own, n, 1, 0)
            return own.states[0]
        if n == self.chunks[-1].stop:
            self.chunks.append(self._allocate(n, min(n, self.last - n)))
        if n % NEAR:
            self._add(self.chunks[-1], n, 1, n - n % NEAR)
        elif n % BLOCK:
            self._add(self.chunks[-1], n, NEAR, n - NEAR)
        else:
            self._add(self.chunks[-1], n, BLOCK, 0)
        return self.row(n)

    def _allocate(self, start: int, count: int) -> Chunk:
        memory = torch.empty(count * (self.shape.numel() + PAD), dtype=self.dtype, device=self.terms[0].device)
        return rows_in(memory, start, count, self.shape)

    def _add(self, target: Chunk, n: int, count: int, first: int) -> None:
        """Sums n .. n + count - 1 += w^T [r_first .. r_{n-1}], or = where first is 0. Autocast leaves `out=` alone."""
        row, end, beta = n - target.start, min(n + count, target.stop), min(first, 1)
        for known in self.chunks:
            for low in range(max(first, known.start), min(n, known.stop), BLOCK):
                high = min(low + BLOCK, n, known.stop)
                sources = slice(low - known.start, high - known.start)
                for term in self.terms:
                    weights = term[n:end, low:high]
                    if count == 1:
                        sums = target.parts[:, row : row + 1]
                        torch.baddbmm(
                            sums, weights.expand(len(sums), -1, -1), known.parts[:, sources], beta=beta, out=sums
                        )
                    else:
                        sums = target.flat[row : row + end - n]
                        torch.addmm(sums, weights, known.flat[sources], beta=beta, out=sums)
                    beta = 1


def _terms(weights: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Weights as terms of the states' dtype: rounded to half precision they would not see small changes of c."""
    high = weights.to(dtype)
    return [high] if dtype.itemsize >= 4 else [high, (weights - high).to(dtype)]


class Gradients:
    """The gradients of one forward's states and weights, gathered from the last step's backward to the first's."""

    def __init__(self, weights: Tensor, sums: Recursion) -> None:
        self.weights = weights.detach()
        self.trained = weights.requires_grad
        self.shape, self.dtype = sums.shape, sums.dtype
        self.last = sums.last
        self.task = -1
        self.total: Tensor | None = None  # dL/dw, from step 1's backward to Enter's

    def push(self, j: int, g: Tensor | None, state: Tensor | None) -> Tensor:
        """Take G_j and, where weights are trained, h_{j-1}; give what later steps contribute to G_{j-1}."""
        n = self.last - j
        if self.task != torch._C._current_graph_task_id():
            self._begin(n)
        if state is not None:
            if self.run and not _adjacent(state, self.run[-1]):
                self._multiply(j)
            self.run.append(state)
        row = self.recursion.row(n)
        row.zero_() if g is None else row.copy_(g)
        contribution = self.recursion.sum_before(n + 1)
        if j == 1:
            self._multiply(0)
            self.total = self.products.flip(1).triu(1)  # column n -> column K - n
            self.task = -1
            del self.recursion, self.products
        return contribution

    def _begin(self, n: int) -> None:
        """A new backward, maybe over a kept graph. Steps after K - n take no part in it: their gradients are zero."""
        self.task = torch._C._current_graph_task_id()
        self.recursion = Recursion(self.weights.flip(0, 1).T, self.shape, self.dtype, grow=True)  # r_n = G_{K-n}
        self.run: list[Tensor] = []  # h_i, i descending: neighbours in memory, whose products are taken together
        self.products = torch.zeros_like(self.weights)  # [i, n] = <h_i, G_{K-n}>
        for skipped in range(n):
            self.recursion.row(skipped).zero_()
            self.recursion.sum_before(skipped + 1)

    def _multiply(self, i: int) -> None:
        """Products of the run's states, h_i the last of them, with G_K .. G_{i+1}."""
        if not self.run:
            return
        states = rows_in(self.run[-1], i, len(self.run), self.shape)
        self.run.clear()
        part = states.parts.shape[2]
        width = part if self.dtype.itemsize >= 4 else SLICE
        for known in self.recursion.chunks:
            gradients = min(known.stop, self.last - i) - known.start  # G_j with j <= i do not depend on h_i
            rows = min(states.stop, self.last - known.start) - i
            if gradients <= 0:
                break
            products = self.products[i : i + rows, known.start : known.start + gradients]
            for first in range(0, part, width):
                h = states.parts[:, :rows, first : first + width].to(products.dtype)
                g = known.parts[:, :gradients, first : first + width].to(products.dtype)
                products += (h @ g.transpose(1, 2)).sum(0)


def _adjacent(row: Tensor, following: Tensor) -> bool:
    """Whether two states are neighbouring rows in memory. They are not where a saved-tensor hook replaced them."""
    same = row.untyped_storage().data_ptr() == following.untyped_storage().data_ptr()
    return same and following.storage_offset() - row.storage_offset() == row.numel() + PAD


class Enter(torch.autograd.Function):
    """h_0 = x: the node at which the gradients of x and of all weights leave."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, sums: Recursion, gradients: Gradients) -> Tensor:
        ctx.gradients = gradients
        ctx.set_materialize_grads(False)
        return _own(sums.row(0).copy_(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:
        total, ctx.gradients.total = ctx.gradients.total, None
        return g, total if ctx.needs_input_grad[1] else None, None, None


class Step(torch.autograd.Function):
    """h_j = out_j + s_j. h_{j-1} is an argument, so that backward runs step by step."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, before: Tensor, j: int, sums: Recursion, gradients: Gradients) -> Tensor:
        ctx.j, ctx.gradients = j, gradients
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(before if gradients.trained else None)
        return _own(sums.sum_before(j).add_(out))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, Tensor, None, None, None]:
        (before,) = ctx.saved_tensors
        return g, ctx.gradients.push(ctx.j, g, before), None, None, None


def _own(row: Tensor) -> Tensor:
    """The same memory with a version counter of its own: autograd saves rows while later ones are being written."""
    return row.data

"""The weighted sum over all earlier states, fused: h_j = out_j + sum_{i<j} w_ij h_i, forward and backward.

A term-by-term sum under autograd reads and writes whole states for every term. Here autograd sees one node per step,
and since, with G_j the gradient of h_j,

    G_i = (through block i+1) + sum_{j>i} w_ij G_j,      dL/dw_ij = <h_i, G_j>,

backward is the forward recursion run from the last step to the first, and the gradient of all weights is a few matrix
products. Every h_i receives its true G_i, so hooks and gradients on states in between are exact.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 16  # rows whose sums take in all rows before them at once, in one matrix product
NEAR = 8  # rows that each step reads for itself
FIRST = 4  # rows of the first chunk of memory
PARTS = 16  # parts of a row that processor cores can share: a matrix-vector product alone runs on one
PAD = 64  # numbers between two rows: rows a power of two apart would share cache sets
SLICE = 2**22  # numbers of a half-precision matrix that are widened at once


class Recursion:
    """Rows r_0 .. r_{N-1}, each known after those before it, and the sums s_n = sum_{i<n} w_in r_i, n = 1..N.

    Where BLOCK divides n, rows [0, n) are added to the sums of the next BLOCK rows; where only NEAR does, rows
    [n - NEAR, n) to the next NEAR; other n read the rows since then: some NEAR / 2 + N / BLOCK reads of each row.
    Rows lie in chunks [0, 4), [4, 8), [8, 16), [16, 32), [32, 48), ..: memory grows with the rows that are known.
    """

    def __init__(self, weights: Tensor, shape: torch.Size, dtype: torch.dtype) -> None:
        """`weights` (N+1, N+1), upper triangular; `shape` and `dtype` of a state, which has D numbers."""
        self.last = len(weights) - 1
        self.shape, self.dtype = shape, dtype
        self.terms = _terms(weights.T, dtype)
        self.chunks: list[tuple[int, Tensor]] = []  # (number of the first row, rows (R, PARTS, D / PARTS rounded up))
        self._open(0)

    def row(self, n: int) -> Tensor:
        """r_n, the newest row, in the shape of a state."""
        start, rows = self.chunks[-1]
        return _state(rows[n - start], self.shape)

    def sum_before(self, n: int) -> Tensor:
        """s_n in the shape of a state: in the memory of row n, which becomes r_n; for n = N in memory of its own."""
        if n == self.last:
            own = self._rows(1)
            self._add(own, n, range(n), fresh=True)
            return _state(own[0], self.shape)
        if n % BLOCK == 0 or n in (FIRST, NEAR):
            self._open(n)
        near = n - n % NEAR
        if n > near:
            count, sources = 1, range(near, n)
        else:
            count, sources = (NEAR, range(n - NEAR, n)) if n % BLOCK else (BLOCK, range(n))
        start, rows = self.chunks[-1]
        self._add(rows[n - start : n - start + count], n, sources, fresh=sources.start == 0)
        return self.row(n)

    def _open(self, n: int) -> None:
        self.chunks.append((n, self._rows(min(n or FIRST, BLOCK, self.last - n))))

    def _rows(self, count: int) -> Tensor:
        size = self.shape.numel()
        memory = torch.empty(count, _distance(size), dtype=self.dtype, device=self.terms[0].device)
        memory[:, size:] = 0  # what fills up the last part counts in inner products
        return _parts(memory, count, size)

    def _add(self, sums: Tensor, n: int, sources: range, fresh: bool) -> None:
        """Rows n .. of `sums` (T, PARTS, _) += w^T rows[sources]; `fresh`: from zero. Autocast leaves `out=` alone."""
        for start, rows in self.chunks:
            first, stop = max(start, sources.start), min(start + len(rows), sources.stop)
            if first >= stop:
                continue
            known = rows[first - start : stop - start]  # (R, PARTS, _)
            for term in self.terms:
                weights, beta = term[n : n + len(sums), first:stop], 0 if fresh else 1  # (T, R)
                if len(sums) == 1:
                    total = sums.transpose(0, 1)
                    torch.baddbmm(total, weights.expand(PARTS, -1, -1), known.transpose(0, 1), beta=beta, out=total)
                else:
                    total = sums.flatten(1)
                    torch.addmm(total, weights, known.flatten(1), beta=beta, out=total)
                fresh = False


def _terms(weights: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Weights as terms of the states' dtype: rounded to half precision they would not see small changes of c."""
    high = weights.to(dtype)
    return [high] if dtype.itemsize >= 4 else [high, (weights - high).to(dtype)]


def _distance(size: int) -> int:
    """Numbers from one row to the next, for states of `size` numbers."""
    return -(-size // PARTS) * PARTS + PAD


def _parts(first: Tensor, count: int, size: int) -> Tensor:
    """`count` rows of `size` numbers from the memory of `first` on: (count, PARTS, _)."""
    part = -(-size // PARTS)
    return first.as_strided((count, PARTS, part), (_distance(size), part, 1))


def _state(row: Tensor, shape: torch.Size) -> Tensor:
    return row.view(-1)[: shape.numel()].view(shape)


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
        self.recursion = Recursion(self.weights.flip(0, 1).T, self.shape, self.dtype)  # r_n = G_{K-n}
        self.run: list[Tensor] = []  # h_i, i descending: rows of one chunk, whose products are taken together
        self.products = torch.zeros_like(self.weights)  # [i, n] = <h_i, G_{K-n}>
        for skipped in range(n):
            self.recursion.row(skipped).zero_()
            self.recursion.sum_before(skipped + 1)

    def _multiply(self, i: int) -> None:
        """Products of the run's states, h_i the last of them, with G_K .. G_{i+1}."""
        if not self.run:
            return
        states = _parts(self.run[-1], len(self.run), self.shape.numel())  # (S, PARTS, _)
        self.run.clear()
        width = states.shape[2] if self.dtype.itemsize >= 4 else SLICE // len(states)
        for start, chunk in self.recursion.chunks:
            gradients = chunk[: self.last - i - start]  # (R, PARTS, _)
            products = self.products[i : i + len(states), start : start + len(gradients)]
            for h, g in zip(states.split(width, 2), gradients.split(width, 2)):
                h, g = h.transpose(0, 1).to(products.dtype), g.permute(1, 2, 0).to(products.dtype)
                products += (h @ g).sum(0)


def _adjacent(row: Tensor, following: Tensor) -> bool:
    """Whether two states are neighbouring rows in memory. They are not where a saved-tensor hook replaced them."""
    same = row.untyped_storage().data_ptr() == following.untyped_storage().data_ptr()
    return same and following.storage_offset() - row.storage_offset() == _distance(row.numel())


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

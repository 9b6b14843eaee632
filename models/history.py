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

NEAR = 8  # rows that each step reads for itself, at most; a power of two
BLOCK = 32  # rows whose sums take in all rows before them at once; rows in one chunk, at most; a power of two
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


class Reading(NamedTuple):
    """sums (P, 1, D / P) = beta sums + weights (P, 1, R) known (P, R, D / P)."""

    sums: Tensor
    weights: Tensor
    known: Tensor
    beta: int


def rows_in(memory: Tensor, start: int, count: int, shape: torch.Size) -> Chunk:
    """The rows of states of `shape` that begin where `memory` begins."""
    size = shape.numel()
    parts = PARTS if size % PARTS == 0 else 1
    flat = memory.as_strided((count, size), (size + PAD, 1))
    split = memory.as_strided((parts, count, size // parts), (size // parts, size + PAD, 1))
    return Chunk(start, start + count, flat.view(count, *shape), flat, split)


class Recursion:
    """Rows r_0 .. r_{N-1}, each known after those before it, and the sums s_n = sum_{i<n} w_in r_i, n = 1..N.

    At a multiple n of NEAR, with B the largest power of two that divides n: where B < BLOCK, rows [n - B, n) are added
    to the sums of the next B rows; else rows [0, n) to the next BLOCK. Each step reads the rows since then for itself.
    So each pair of rows meets once, and a row is read some NEAR / 2 + N / BLOCK times, not N / 2.

    What a step reads is laid out when its memory is: between large blocks, whose data fill the caches, Python is slow.
    """

    def __init__(self, weights: Tensor, shape: torch.Size, dtype: torch.dtype, first: int) -> None:
        """`weights` (N+1, N+1), upper triangular; states of `shape` and `dtype`; memory for `first` rows, then doubled.

        `first` is a power of two, so that no block of rows straddles two pieces of memory, or N.
        """
        self.last = weights.shape[0] - 1
        self.shape, self.dtype, self.first = shape, dtype, first
        self.terms = _terms(weights.T, dtype)
        self.chunks: list[Chunk] = []
        self.rows: list[Tensor] = []  # r_n in the shape of a state
        self.readings: list[list[Reading]] = []  # of step n
        self._open(0)

    def sum_before(self, n: int) -> Tensor:
        """s_n in the shape of a state: in the memory of row n, which becomes r_n; for n = N in memory of its own."""
        if n == len(self.rows):
            self._open(n)
        if n % NEAR == 0 and n < self.last:
            self._add_block(n)
        for sums, weights, known, beta in self.readings[n]:
            torch.baddbmm(sums, weights, known, beta=beta, out=sums)  # autocast leaves `out=` alone, TF32 does not
        return self.rows[n]

    def _open(self, n: int) -> None:
        """Memory for the next rows, and what their steps read. The row beyond the last is the caller's alone."""
        count = min(max(n, self.first), BLOCK, max(self.last - n, 1))
        memory = torch.empty(count * (self.shape.numel() + PAD), dtype=self.dtype, device=self.terms[0].device)
        new = rows_in(memory, n, count, self.shape)
        if n < self.last:
            self.chunks.append(new)
        self.rows += new.states.unbind()
        for row in range(n, n + count):
            first = row - row % NEAR if row < self.last else 0
            self.readings.append(self._readings(row, new.parts[:, row - n : row - n + 1], first))

    def _readings(self, n: int, sums: Tensor, first: int) -> list[Reading]:
        """How sums, of row n, takes in rows [first, n)."""
        found: list[Reading] = []
        for chunk in self.chunks:
            low, high = max(first, chunk.start), min(n, chunk.stop)
            for term in self.terms if low < high else ():
                weights = term[n : n + 1, low:high].expand(len(sums), -1, -1)
                known = chunk.parts[:, low - chunk.start : high - chunk.start]
                found.append(Reading(sums, weights, known, beta=1 if found else min(first, 1)))
        return found

    def _add_block(self, n: int) -> None:
        count = min(n & -n, BLOCK)
        first = n - count if count < BLOCK else 0
        target = self.chunks[-1]
        sums = target.flat[n - target.start :][:count]  # (T, D)
        beta = min(first, 1)
        for chunk in self.chunks:
            low, high = max(first, chunk.start), min(n, chunk.stop)
            for term in self.terms if low < high else ():
                known = chunk.flat[low - chunk.start : high - chunk.start]  # (R, D)
                torch.addmm(sums, term[n : n + len(sums), low:high], known, beta=beta, out=sums)
                beta = 1


def _terms(weights: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Weights as terms of the states' dtype: rounded to half precision they would not see small changes of c."""
    high = weights.to(dtype)
    return [high] if dtype.itemsize >= 4 else [high, (weights - high).to(dtype)]


class Gradients:
    """The gradients of one forward's states and weights, gathered from the last step's backward to the first's."""

    def __init__(self, weights: Tensor, shape: torch.Size, dtype: torch.dtype) -> None:
        self.weights = weights.detach()
        self.trained = weights.requires_grad
        self.shape, self.dtype = shape, dtype
        self.last = weights.shape[0] - 1
        self.task = -1
        self.total: Tensor | None = None  # dL/dw, from step 1's backward to Enter's

    def push(self, j: int, g: Tensor, state: Tensor | None) -> Tensor:
        """Take G_j and, where weights are trained, h_{j-1}; give what later steps contribute to G_{j-1}."""
        n = self.last - j
        if self.task != torch._C._current_graph_task_id():
            self._begin(n)
        self.recursion.rows[n].copy_(g)
        if state is not None:
            self.pending.append(state.contiguous())
            if len(self.pending) == BLOCK or j == 1:
                self._multiply(j - 1)
        contribution = self.recursion.sum_before(n + 1)
        if j == 1:
            self.total = self.products.flip(1).triu(1).to(self.weights.dtype)  # column n -> column K - n
            self.task = -1
            del self.recursion, self.products
        return contribution

    def _begin(self, n: int) -> None:
        """A new backward, maybe over a kept graph. Steps after K - n take no part in it: their gradients are zero."""
        if torch.is_grad_enabled():
            raise NotImplementedError("the mix of states has no second derivative: create_graph is not supported")
        self.task = torch._C._current_graph_task_id()
        first = 8 if self.last >= 16 else 4  # few: activations fill the memory now, and less with every step
        self.recursion = Recursion(self.weights.flip(0, 1).T, self.shape, self.dtype, first)  # r_n = G_{K-n}
        self.pending: list[Tensor] = []  # h_i, i descending, whose products are yet to be taken
        wide = torch.promote_types(self.weights.dtype, self.dtype)
        self.products = torch.zeros_like(self.weights, dtype=wide)  # [i, n] = <h_i, G_{K-n}>
        for skipped in range(n):
            self.recursion.rows[skipped].zero_()
            self.recursion.sum_before(skipped + 1)

    def _multiply(self, i: int) -> None:
        """Products of the pending states, h_i the last of them, with G_K .. G_{i+1}: neighbours in memory together."""
        while self.pending:
            count = 1
            while count < len(self.pending) and _adjacent(self.pending[-count], self.pending[-count - 1]):
                count += 1
            states = rows_in(self.pending[-1], i, count, self.shape)
            del self.pending[-count:]
            for chunk in self.recursion.chunks:
                if chunk.start < self.last - i:
                    self._multiply_chunk(states, chunk)
            i += count

    def _multiply_chunk(self, states: Chunk, chunk: Chunk) -> None:
        stop = min(chunk.stop, self.last - states.start)  # G_j with j <= i does not depend on h_i
        products = self.products[states.start : states.stop, chunk.start : stop]
        gradients = chunk.parts[:, : stop - chunk.start]
        part = gradients.shape[2]
        width = max(part, 1) if self.dtype.itemsize >= 4 else SLICE  # an empty batch has parts of 0
        for first in range(0, part, width):
            h = states.parts[:, :, first : first + width].to(products.dtype)
            g = gradients[:, :, first : first + width].to(products.dtype)
            products += (g @ h.transpose(1, 2)).sum(0).T  # faster with the fewer rows on the left


def _adjacent(row: Tensor, following: Tensor) -> bool:
    """Whether two states are neighbouring rows in memory. They are not where a saved-tensor hook replaced them."""
    same = row.untyped_storage().data_ptr() == following.untyped_storage().data_ptr()
    return same and following.storage_offset() - row.storage_offset() == row.numel() + PAD


class Enter(torch.autograd.Function):
    """h_0 = x: the node at which the gradients of x and of all weights leave."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, sums: Recursion, gradients: Gradients) -> Tensor:
        ctx.gradients = gradients
        return _own(sums.rows[0].copy_(x))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        total, ctx.gradients.total = ctx.gradients.total, None
        return g, total if ctx.needs_input_grad[1] else None, None, None


class Step(torch.autograd.Function):
    """h_j = out_j + s_j. h_{j-1} is an argument, so that backward runs step by step."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, before: Tensor, j: int, sums: Recursion, gradients: Gradients) -> Tensor:
        ctx.j, ctx.gradients = j, gradients
        ctx.save_for_backward(before if gradients.trained else None)
        return _own(sums.sum_before(j).add_(out))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (before,) = ctx.saved_tensors
        return g, ctx.gradients.push(ctx.j, g, before), None, None, None


def _own(row: Tensor) -> Tensor:
    """The same memory with a version counter of its own: autograd saves rows while later ones are being written."""
    return row.data

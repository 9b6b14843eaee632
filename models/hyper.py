"""Hyper-connections: a state is n streams, and each block reads, keeps and writes them by weights of its own.

    u = a^T H,   H <- A^T H + b F(u)^T,   H (n, d), a and b (n), A (n, n)

The weights have a static part and one that depends on H itself. Both kinds take the whole step from one tensor
w = [a | A | b] (n, n+2) for each token, so that reading and keeping are one contraction, [a | A]^T H.

H starts as n copies of x. The mean of the rows leaves the stack: the papers' sum over n, so that at its start the
network equals the residual one also where no norm follows.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from models.outputs import Outputs, inverse_rms
from models.stack import Returns, State, call

SCALE = 0.01  # of the part that depends on H, at the start
TINY = 1e-20  # sums below it count as 0: divided by them, gradients overflow
NEAR_IDENTITY = 8.0  # logits of mHC's A at the start: e^-8 = 3e-4 beside its diagonal, where gradients still flow


class Weights(NamedTuple):
    """The parameters of one step; R = d features and C = n + 2 weights of a stream, or R = n d and C = n (n + 2)."""

    static: Tensor  # (n, n+2)
    project: Tensor  # (R, C)
    gain: Tensor  # (R), of the norm
    scale: Tensor  # of the projected logits: one for each group of columns


class Streams(Outputs):
    """`depth` steps over `streams` streams. Every parameter holds those of all steps, step by step.

    Args:
        groups: for each column of [a | A | b], which entry of `scale` it has.
        flat: each weight is read from all streams of a token together, else from its own stream.
    """

    group: Tensor

    def __init__(self, kind: str, depth: int, width: int, static: Tensor, groups: list[int], *, flat: bool) -> None:
        super().__init__()
        self.kind, self.depth, self.flat = kind, depth, flat
        self.streams, columns = static.shape[1:]
        many = self.streams if flat else 1
        self.static = nn.Parameter(static)
        self.project = nn.Parameter(torch.zeros(depth, many * width, many * columns))
        self.gain = nn.Parameter(torch.ones(depth, many * width))
        self.scale = nn.Parameter(torch.full((depth, max(groups) + 1), SCALE))
        self.register_buffer("group", torch.tensor(groups), persistent=False)

    @abstractmethod
    def norm_scale(self, streams: Tensor) -> Tensor:
        """1 / the root mean square of what logits are read from: (.., n, d) to (.., n, 1), or (.., 1, 1) for all."""

    @abstractmethod
    def weigh(self, logits: Tensor, static: Tensor, scale: Tensor) -> Tensor:
        """w = [a | A | b] from logits, static weights and the scales of the columns: all (.., n, n+2)."""

    def steps(self) -> Iterator[Weights]:
        parts = (self.static.unbind(), self.project.unbind(), self.gain.unbind(), self.scale[:, self.group].unbind())
        return (Weights(*step) for step in zip(*parts, strict=True))

    def connect(self, streams: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
        """u (.., d) in the streams' dtype; A^T H (.., n, d) and b (.., n, 1), float32 at least; from H (.., n, d).

        norm(H) W = (H (gain W)) / rms(H): the normed streams, as large as H, are never formed.
        """
        with torch.autocast(streams.device.type, enabled=False):
            wide = torch.promote_types(streams.dtype, weights.static.dtype)
            H = streams.to(wide)
            static, project, gain, scale = (part.to(wide) for part in weights)
            read = (H.flatten(-2) if self.flat else H) @ (gain.unsqueeze(-1) * project)
            logits = read.view(*H.shape[:-1], -1) * self.norm_scale(H)
            w = self.weigh(logits, static, scale)
            mixed = w[..., :-1].mT @ H  # (.., 1 + n, d)
            return mixed[..., 0, :].to(streams.dtype), mixed[..., 1:, :], w[..., -1:]

    def copies(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-2).expand(*x.shape[:-1], self.streams, x.shape[-1])

    def start(self, x: Tensor, returns: Returns) -> State:
        return Running(self, x, returns)

    def recompute(self, x: Tensor, returns: Returns, blocks: nn.ModuleList, args: tuple[Any, ...]) -> Tensor:
        """Keeps the streams between blocks; backward runs each block and its mixing again."""

        def step(block: nn.Module, streams: Tensor, weights: Weights) -> Tensor:
            u, kept, b = self.connect(streams, weights)
            return add(kept, b, self.output(call(block, u, args), u, returns), streams.dtype)

        streams = self.copies(x)
        for block, weights in zip(blocks, self.steps(), strict=True):
            streams = checkpoint(step, block, streams, weights, use_reentrant=False)
        return streams.mean(-2)

    def sums(self) -> Tensor:
        """Of the static weights, which are those of logits zero."""
        n, K = self.streams, self.depth
        w = self.weigh(torch.zeros_like(self.static), self.static, self.scale[:, None, self.group]).float()
        held = w.new_zeros(n, K + 1)  # of v_i in each stream
        held[:, 0] = 1
        columns = []
        for j in range(K):
            columns.append(w[j, :, 0] @ held)
            held = w[j, :, 1:-1].T @ held
            held[:, j + 1] = w[j, :, -1]
        return torch.stack([*columns, held.mean(0)], dim=1)


class HyperConnections(Streams):
    """2409.19606, once for each block: w = static + s tanh(norm(H_k) W), each stream's row from its own rmsnorm."""

    def __init__(self, kind: str, depth: int, width: int, streams: int) -> None:
        n = streams
        static = torch.cat((torch.zeros(depth, n, 1), torch.eye(n).expand(depth, n, n), torch.ones(depth, n, 1)), dim=2)
        static[range(depth), [j % n for j in range(depth)], 0] = 1
        super().__init__(kind, depth, width, static, [0] * (n + 1) + [1], flat=False)

    def norm_scale(self, streams: Tensor) -> Tensor:
        return inverse_rms(streams, -1)

    def weigh(self, logits: Tensor, static: Tensor, scale: Tensor) -> Tensor:
        return static + scale * logits.tanh()


class Constrained(Streams):
    """mHC (2512.24880): a = sigmoid, b = 2 sigmoid, and A is made doubly stochastic, so that no sum of streams grows.

    z = static + s norm(H) W with one norm over all streams of a token. At the start the entries of a sum to 1, those of
    b are 1 and A is near I.
    """

    def __init__(self, kind: str, depth: int, width: int, streams: int, iterations: int, *, flat: bool) -> None:
        n = streams
        read = torch.full((depth, n, 1), -math.log(n - 1))  # sigmoid of it is 1 / n
        keep = NEAR_IDENTITY * (torch.eye(n) - 1).expand(depth, n, n)
        static = torch.cat((read, keep, torch.zeros(depth, n, 1)), dim=2)
        super().__init__(kind, depth, width, static, [0] + [1] * n + [2], flat=flat)
        self.iterations = iterations

    def norm_scale(self, streams: Tensor) -> Tensor:
        return inverse_rms(streams, (-2, -1))

    def weigh(self, logits: Tensor, static: Tensor, scale: Tensor) -> Tensor:
        z = static + scale * logits
        gates = z[..., :: z.shape[-1] - 1].sigmoid()  # a and b
        keep = doubly_stochastic(z[..., 1:-1], self.iterations)
        return torch.cat((gates[..., :1], keep, 2 * gates[..., 1:]), dim=-1)


class Running(State):
    """One forward over streams."""

    def __init__(self, topology: Streams, x: Tensor, returns: Returns) -> None:
        self.topology, self.returns, self.dtype = topology, returns, x.dtype
        self.steps = topology.steps()
        self.u, self.kept, self.b = topology.connect(topology.copies(x), next(self.steps))
        self.streams: Tensor | None = None

    def read(self) -> Tensor:
        return self.u

    def write(self, out: Tensor) -> None:
        streams = add(self.kept, self.b, self.topology.output(out, self.u, self.returns), self.dtype)
        following = next(self.steps, None)
        if following is None:
            self.streams = streams
        else:
            self.u, self.kept, self.b = self.topology.connect(streams, following)

    def finish(self) -> Tensor:
        assert self.streams is not None  # after K steps
        return self.streams.mean(-2)


def add(kept: Tensor, b: Tensor, branch: Tensor, dtype: torch.dtype) -> Tensor:
    """A^T H + b F(u)^T: (.., n, d)."""
    return torch.addcmul(kept, b, branch.to(kept.dtype).unsqueeze(-2)).to(dtype)


class Sinkhorn(torch.autograd.Function):
    """exp(z) (.., n, n), divided by its row sums and its column sums in turn (Sinkhorn and Knopp, 1967).

    Y = X / s has the gradient G_X = (G_Y - sum(G_Y Y)) / s and X = Y s: backward needs the sums alone, and goes back
    through the matrices. A token's n x n numbers lie far apart, so that sums run over whole rows of memory.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, iterations: int) -> Tensor:
        m = (z - z.amax(-1, keepdim=True)).flatten(0, -3).permute(1, 2, 0).contiguous().exp()  # (n, n, T)
        sums = []
        for number in range(2 * iterations):
            total = m.sum(1 - number % 2, keepdim=True)
            sums.append(total.where(total > TINY, 1))  # a column that underflowed stays 0
            m = m / sums[-1]
        ctx.save_for_backward(m, *sums)
        return m.permute(2, 0, 1).reshape(z.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        m, *sums = ctx.saved_tensors
        g = gradient.flatten(0, -3).permute(1, 2, 0).contiguous()
        for number, total in enumerate(reversed(sums)):
            g = (g - (g * m).sum(number % 2, keepdim=True)) / total
            m = m * total
        return (g * m).permute(2, 0, 1).reshape(gradient.shape), None


def doubly_stochastic(logits: Tensor, iterations: int) -> Tensor:
    """A (.., n, n) near exp(logits) whose rows and columns sum to 1, from any logits.

    Where they lie far apart, rows are still off when columns have just been divided. Those above 1 are divided too, and
    what rows and columns then lack is filled in by one product (1705.09634, algorithm 2).
    """
    m: Tensor = Sinkhorn.apply(logits, iterations)  # type: ignore[no-untyped-call]
    m = m / m.sum(-1, keepdim=True).clamp(min=1)
    rows, columns = (1 - m.sum(-1, keepdim=True)).relu(), (1 - m.sum(-2, keepdim=True)).relu()
    return m + rows * columns / rows.sum(-2, keepdim=True).clamp(min=TINY)

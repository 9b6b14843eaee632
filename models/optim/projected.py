"""Adam in a subspace of each gradient that is chosen anew now and then: the rule of GaLore (2403.03507)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def subspace(gradient: Tensor, rank: int) -> Tensor:
    """The first singular vectors of G (m, n) on its smaller side: (rank, n) of the right ones for m >= n, else
    (m, rank) of the left ones; each signed so that its largest entry is positive.

    They are eigenvectors of the smaller side's Gram matrix in float64: on a CPU 1.0 to 2.3 times as fast as a float32
    SVD of G, and nearer to the truth. (In float32 they would not be: squared singular values lose half the digits.)
    Signs are free in an SVD, but moments outlive the subspace, so results should not hang on a library's choice.
    """
    tall = gradient.shape[0] >= gradient.shape[1]
    g = gradient.double()
    vectors = torch.linalg.eigh(g.T @ g if tall else g @ g.T).eigenvectors[:, -rank:].flip(1)  # (min(m, n), rank)
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))  # (1, rank)
    signed: Tensor = (vectors * largest.sign()).to(gradient.dtype)
    return signed.T.contiguous() if tall else signed


class ProjectedAdam(torch.optim.Optimizer):
    """Adam on R = G Q^T (m >= n) or P^T G (m < n); the weights move by scale times its step, projected back.

    Moments stay as they are when the subspace changes. eps is added to sqrt(V) before bias correction. Moments and
    projectors have the parameter's dtype.

    Args:
        params: matrices whose smaller side exceeds `rank`.
        gap: steps between two choices of the subspace, the first of which is made at the first step.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        rank: int,
        gap: int,
        scale: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        super().__init__(params, {"lr": lr, "rank": rank, "gap": gap, "scale": scale, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, p.grad, group)

    def _move(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state, (b1, b2) = self.state[p], group["betas"]
        if not state:
            state["step"] = torch.zeros(())  # on the CPU, where reading it waits for nothing
        step = int(state["step"])
        if step % group["gap"] == 0:
            state["projector"] = subspace(gradient, group["rank"])
        tall, projector = p.shape[0] >= p.shape[1], state["projector"]
        low = gradient @ projector.T if tall else projector.T @ gradient  # (m, rank) or (rank, n)
        if not step:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(low), torch.zeros_like(low)
        first, second = state["exp_avg"], state["exp_avg_sq"]
        first.mul_(b1).add_(low, alpha=1 - b1)
        second.mul_(b2).addcmul_(low, low, value=1 - b2)
        state["step"] += 1
        size = group["lr"] * (1 - b2 ** (step + 1)) ** 0.5 / (1 - b1 ** (step + 1))
        n = first / (second.sqrt() + group["eps"])
        p.add_(n @ projector if tall else projector @ n, alpha=-size * group["scale"])

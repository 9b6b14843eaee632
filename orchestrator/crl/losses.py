"""What contrastive RL minimises, as pure functions of tensors.

    L_ij = f(s_i, a_i, g_j)                                                              `energy`, `logits`
    critic: mean_i (lse_i - L_ii) + penalty mean_i lse_i^2, lse_i = logsumexp_j L_ij    `info_nce`
    actor:  mean (alpha log pi(a|s,g) - f(s, a, g)), a = tanh(mean + std eps)           `actor_loss`
    alpha:  alpha mean (-log pi - H), H = -entropy_param A                              `alpha_loss`

Wang et al., arXiv 2503.14858; energies and the direction of InfoNCE as in JaxGCRL, arXiv 2408.11052.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from orchestrator.crl.spec import Contrast, Energy

EPS = 1e-6  # inside the square root: at distance 0 its slope would be infinite


def energy(kind: Energy, phi: Tensor, psi: Tensor) -> Tensor:
    """f of each pair: (B, R) and (B, R) to (B)."""
    if kind == "dot":
        return (phi * psi).sum(-1)
    if kind == "cosine":
        return (normalize(phi, dim=-1) * normalize(psi, dim=-1)).sum(-1)
    squared = (phi - psi).square().sum(-1)
    return -squared if kind == "l2" else -(squared + EPS).sqrt()


def logits(kind: Energy, phi: Tensor, psi: Tensor) -> Tensor:
    """f of all pairs: (B, R) and (C, R) to (B, C)."""
    if kind == "dot":
        return phi @ psi.T
    if kind == "cosine":
        return normalize(phi, dim=-1) @ normalize(psi, dim=-1).T
    squared = squared_distances(phi, psi)
    return -squared if kind == "l2" else -(squared + EPS).sqrt()


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|^2 by one matrix product, (B, R) and (C, R) to (B, C).

    |x|^2 + |y|^2 - 2 x y loses digits where both are far from 0, so both are first moved by the mean of y.
    """
    centre = y.mean(0).detach()  # distances do not depend on it, so neither do gradients
    x, y = x - centre, y - centre
    norms = x.square().sum(1, keepdim=True) + y.square().sum(1)
    return torch.addmm(norms, x, y.T, alpha=-2).clamp(min=0)


def info_nce(kind: Contrast, scores: Tensor, penalty: float) -> Tensor:
    """InfoNCE of L, (B, B), whose diagonal holds the positive pairs: over j, over i, or the sum of both.

    The penalty is on the logsumexp over j whatever the direction, as published.
    """
    positive, over_goals = scores.diagonal(), scores.logsumexp(1)
    loss = penalty * over_goals.square().mean()
    if kind != "backward":
        loss = loss + (over_goals - positive).mean()
    if kind != "forward":
        loss = loss + (scores.logsumexp(0) - positive).mean()
    return loss


def accuracy(scores: Tensor) -> Tensor:
    """The fraction of pairs whose own goal has the largest score in its row, (B, B) to ()."""
    return (scores.diagonal() >= scores.amax(1)).float().mean()


def sample_action(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """a = tanh(mean + std noise) and its log-density: (.., A) three times to (.., A) and (..).

    log pi(a) = sum_d log N(u_d; mean_d, std_d) - log(1 - a_d^2 + 1e-6)
    """
    action = torch.tanh(mean + log_std.exp() * noise)
    normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    return action, (normal - (1 - action.square() + EPS).log()).sum(-1)


def actor_loss(alpha: Tensor, log_prob: Tensor, energies: Tensor) -> Tensor:
    """Of (), (B), (B): falls with f at the policy's own actions, and with its entropy, to the price alpha."""
    return (alpha * log_prob - energies).mean()


def alpha_loss(alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """Rises with alpha where the policy has more entropy than wanted; log_prob counts as constant."""
    return alpha * (-log_prob.detach() - target_entropy).mean()

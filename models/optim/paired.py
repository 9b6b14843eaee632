"""Block matrices by a rule of their own, all other parameters by AdamW, behind one torch optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Paired(torch.optim.Optimizer):
    """One list of groups and one state, as checkpoints know them; the two optimizers only compute the steps.

    Args:
        rule: of the block matrices.
        others: groups of all other parameters, each {"params": .., "weight_decay": ..}; empty ones are dropped.
        lr: the rate of `others`, the same as `rule` has.
        betas: of AdamW; its eps is torch's, 1e-8.
    """

    def __init__(
        self,
        rule: torch.optim.Optimizer,
        others: Sequence[dict[str, Any]],
        lr: float,
        betas: tuple[float, float],
    ) -> None:
        self.rules = {"matrices": rule}
        if used := [group for group in others if group["params"]]:  # a linear network may consist of matrices alone
            self.rules["others"] = torch.optim.AdamW(used, lr=lr, betas=betas, fused=True)
        groups = [group | {"rule": name} for name, rule in self.rules.items() for group in rule.param_groups]
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for name, rule in self.rules.items():
            rule.state = self.state
            rule.param_groups = [group for group in self.param_groups if group["rule"] == name]
            rule.step()

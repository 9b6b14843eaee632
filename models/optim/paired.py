"""Block matrices by a rule of their own, all other parameters by AdamW, behind one torch optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        plain = torch.optim.AdamW([group for group in others if group["params"]], lr=lr, betas=betas, fused=True)
        self.rules = {"matrices": rule, "others": plain}
        groups = [group | {"rule": name} for name, rule in self.rules.items() for group in rule.param_groups]
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for name, rule in self.rules.items():
            rule.state = self.state
            rule.param_groups = [group for group in self.param_groups if group["rule"] == name]
            rule.step()
        return loss

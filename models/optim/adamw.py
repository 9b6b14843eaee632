"""AdamW (1711.05101), with the topology trained like the weights but never decayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from models.optim.base import OptimSpec

if TYPE_CHECKING:
    import torch

Beta = Annotated[float, Field(ge=0, lt=1)]


class Spec(OptimSpec):
    """AdamW at the paper's setting (E.4): betas .9 and .999, no weight decay; where there is one, for matrices only."""

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)

    def state_numbers(self) -> int:
        return 2

    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        import torch

        from models.stack import Topology

        topologies = (module for module in network.modules() if isinstance(module, Topology))
        mixing = {id(c) for topology in topologies for c in topology.parameters()}
        decays = {id(p): p.ndim >= 2 and id(p) not in mixing for p in network.parameters()}
        groups = [
            {"params": [p for p in network.parameters() if decays[id(p)]], "weight_decay": self.weight_decay},
            {"params": [p for p in network.parameters() if not decays[id(p)]], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=self.lr, betas=self.betas, eps=self.eps, fused=True
        )

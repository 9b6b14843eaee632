"""What an optimizer spec is. Every file in this folder defines one `Spec`; the file's name is its kind."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from pydantic import Field

from models.spec import Spec

if TYPE_CHECKING:
    import torch


class OptimSpec(Spec):
    """An optimizer at its peak rate; the training loop scales the rate by its schedule."""

    kind: str
    lr: float = Field(gt=0)

    @abstractmethod
    def state_numbers(self) -> int:
        """Numbers of optimizer state for each trained parameter (AdamW: 2)."""

    @abstractmethod
    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        """The optimizer of `network`; topology coefficients get the same rate and no weight decay."""

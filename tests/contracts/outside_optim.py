"""An optimizer kind outside the package: AdaGrad (Duchi et al., 2011), which takes a stranger these lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from models.optim.base import OptimSpec
from models.optim.parts import Shape, numbers, parts

if TYPE_CHECKING:
    import torch


class Spec(OptimSpec):
    """AdaGrad as torch has it."""

    kind: Literal["contracts.outside_optim"] = "contracts.outside_optim"

    def state_numbers(self, shapes: Sequence[Shape]) -> int:
        return numbers(shapes)

    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        import torch

        return torch.optim.Adagrad([{"params": group} for group in parts(network).values() if group], lr=self.lr)

"""What an optimizer spec is. Every file in this folder that defines a `Spec` is a kind; the file's name is its name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from models.optim.parts import Shape
from models.spec import Spec

if TYPE_CHECKING:
    import torch

Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimSpec(Spec):
    """An optimizer at its peak rate; the training loop scales the rate by its schedule.

    A step treats each parameter by its own gradient and state alone, so that parameters can be stepped one by one.
    """

    kind: str
    lr: float = Field(gt=0)

    shards: ClassVar[bool] = False  # whether its steps are right on parameters of which a worker holds a part (FSDP2)

    def check(self, shapes: Sequence[Shape]) -> None:
        """Raise ValueError, in one line, where this optimizer has nothing to work on in such a network."""

    @abstractmethod
    def state_numbers(self, shapes: Sequence[Shape]) -> int:
        """Numbers of optimizer state for a network of these parameters, counts of steps left out."""

    @abstractmethod
    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        """The optimizer of `network`; topology coefficients get the same rate, no weight decay and their own group.

        Their own, because sharding leaves them whole and float32, and a fused step takes no mixture.

        Raises:
            ValueError: as `check` does.
        """

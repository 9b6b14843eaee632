"""A workload that learns at once: the smallest thing a study can be of, and a kind from outside the package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

from pydantic import Field, model_validator

from models.spec import Spec as FrozenSpec
from models.topology.base import TopologySpec
from models.topology.cascaded import Spec as Cascaded
from orchestrator.kinds import AnyOptim, AnyTopology
from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec


class Bowl(FrozenSpec):
    width: int = Field(default=64, gt=0)
    heads: int = Field(default=4, gt=0)
    depth: int = Field(default=4, gt=0)
    tied: bool = False

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"{self.heads} heads do not divide width {self.width}")
        return self


class Train(FrozenSpec):
    steps: int = Field(default=10, gt=0)
    betas: tuple[float, float] = (0.9, 0.99)


class Spec(TrialSpec):
    """The loss of (x - 1)^2 under gradient descent on x, from 0."""

    model: Bowl = Bowl()
    topology: AnyTopology = Cascaded()
    optim: AnyOptim
    train: Train = Train()
    note: str | None = None

    default_metric: ClassVar[str] = "train/loss"
    metrics: ClassVar[tuple[str, ...]] = ("train/loss", "train/distance")

    @model_validator(mode="after")
    def _connects(self) -> Self:
        topology: TopologySpec = self.topology
        topology.check(self.model.depth)
        return self

    @property
    def total_steps(self) -> int:
        return self.train.steps

    def estimate(self) -> Estimate:
        coefficients = self.topology.num_coefficients(self.model.depth, self.model.width)
        width, depth = self.model.width, self.model.depth
        return Estimate(
            params=width * depth,
            topology_params=coefficients,
            flops=6.0 * width * depth * self.train.steps,
            memory=width * 1024**2,
            disk=100,
        )

    def rows(self, place: Place) -> Iterator[Row]:
        x = 0.0
        for step in range(self.train.steps + 1):
            yield Row(step, {"train/loss": (x - 1) ** 2, "train/distance": abs(x - 1)})
            x -= self.optim.lr * 2 * (x - 1)

"""The paper's case study: a deep linear network fits a low-rank matrix, at a rate that its topology alone decides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from analysis.names import TRAIN_LOSS
from models.linear_spec import LinearSpec
from models.optim.base import OptimSpec
from models.optim.sgd import Spec as Sgd
from models.spec import Spec as FrozenSpec
from models.topology.base import Snapshot, TopologySpec
from models.topology.cascaded import Spec as Cascaded
from orchestrator.errors import Diverged
from orchestrator.kinds import AnyOptim, AnyTopology
from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec

if TYPE_CHECKING:
    from models.linear import LinearNetwork

NETWORK = "linear"  # the network's name in topology.json
FLOAT64 = 8  # bytes


class TrainSpec(FrozenSpec):
    """How long, and how often to look. A row at step s holds the loss after s updates; there is one at step 0."""

    steps: int = Field(default=20_000, ge=1)
    log_every: int = Field(default=500, ge=1)
    checkpoint_every: int = Field(default=0, ge=0)  # steps; 0: none, a run takes seconds


class Spec(TrialSpec):
    """A deep linear network on whitened data, all in float64 (paper, section 3 and appendix E.1)."""

    workload: Literal["lnn"] = "lnn"
    model: LinearSpec = LinearSpec()
    topology: AnyTopology = Cascaded()
    optim: AnyOptim = Sgd()
    train: TrainSpec = TrainSpec()

    default_metric: ClassVar[str] = TRAIN_LOSS
    metrics: ClassVar[tuple[str, ...]] = (TRAIN_LOSS,)

    @field_validator("topology")
    @classmethod
    def _connects(cls, topology: TopologySpec, info: ValidationInfo) -> TopologySpec:
        if "model" in info.data:  # absent where it is itself at fault
            topology.check(info.data["model"].depth)
        return topology

    @field_validator("optim")
    @classmethod
    def _has_work(cls, optim: OptimSpec, info: ValidationInfo) -> OptimSpec:
        if "model" in info.data and "topology" in info.data:
            optim.check(info.data["model"].shapes(info.data["topology"]))
        return optim

    @property
    def total_steps(self) -> int:
        return self.train.steps

    def estimate(self) -> Estimate:
        params = self.model.num_params()
        topology_params = self.topology.num_coefficients(self.model.depth, self.model.width)
        trained = params + topology_params
        states = 2 * (self.model.depth + 1) * self.model.width**2  # and their gradients
        kept = trained + self.optim.state_numbers(self.model.shapes(self.topology))  # what a checkpoint holds
        return Estimate(
            params=params,
            topology_params=topology_params,
            flops=self.train.steps * self.model.flops(),
            memory=FLOAT64 * (kept + trained + states),
            disk=2 * FLOAT64 * kept if self.train.checkpoint_every else 0,  # the last two checkpoints stay
        )

    @property
    def comparable_every(self) -> int:
        return math.lcm(self.train.checkpoint_every, self.train.log_every)

    def check_workers(self, workers: int) -> None:
        if workers > 1:
            raise ValueError(f"lnn runs on one worker, got {workers}")

    def rows(self, place: Place) -> Iterator[Row]:
        """As in `pretrain/steps.py`, a checkpoint comes before the report of its step, which a resumed run repeats."""
        import torch

        from models.linear import LinearNetwork
        from orchestrator.pretrain.checkpoint import Checkpoints

        torch.set_num_threads(place.threads)
        train = self.train
        network = LinearNetwork(self.model, self.topology, self.seed)
        optimizer = self.optim.build(network)
        checkpoints = Checkpoints(place.folder / "checkpoints", self.model_dump(mode="json"), place.check)
        start = checkpoints.newest() or 0
        if start:
            state = checkpoints.load(start)
            network.load_state_dict(state["network"])
            own = {"param_groups": optimizer.state_dict()["param_groups"]}  # its settings are the trial's
            optimizer.load_state_dict(state["optimizer"] | own)
        for step in range(start, train.steps + 1):
            loss = network()
            value = loss.item()
            if not math.isfinite(value):
                raise Diverged(step, TRAIN_LOSS)
            if step > start and train.checkpoint_every and self._due(step, train.checkpoint_every):
                checkpoints.save(step, {"network": network.state_dict(), "optimizer": optimizer.state_dict()})
            if self._due(step, train.log_every):
                yield Row(step, {TRAIN_LOSS: value}, self._snapshot(step, network))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def _due(self, step: int, interval: int) -> bool:
        return step % interval == 0 or step == self.train.steps

    def _snapshot(self, step: int, network: LinearNetwork) -> dict[str, Snapshot] | None:
        """About four on the way, and one at the end."""
        often = self.train.log_every * max(1, self.train.steps // (4 * self.train.log_every))
        return {NETWORK: network.stack.topology.snapshot()} if self._due(step, often) else None

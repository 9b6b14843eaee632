"""What a topology costs: its training steps beside those of the cascaded network, in turn in one run (Table 6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from analysis import names
from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.spec import Spec as FrozenSpec
from models.topology.base import TopologySpec
from models.topology.cascaded import Spec as Cascaded
from orchestrator.kinds import AnyOptim, AnyTopology
from orchestrator.pretrain import footprint
from orchestrator.pretrain.spec import TrainSpec
from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec


class TimingSpec(FrozenSpec):
    """What a step is, and how many are timed. A round is one step of each network, in random order."""

    sequence: int = Field(default=256, ge=1)  # predictions in one sequence
    batch: int = Field(default=64, ge=1)  # sequences of a step, which are one micro-batch
    rounds: int = Field(default=50, ge=2)
    warmup: int = Field(default=3, ge=1)  # rounds before those, in the first of which memory is looked at
    log_every: int = Field(default=10, ge=1)  # rounds
    precision: Literal["fp32", "bf16-mixed", "pure-bf16"] = "fp32"
    activation_checkpointing: bool = False
    compile: bool = False  # blocks by torch.compile

    @property
    def training(self) -> TrainSpec:
        """The same as pre-training would say it."""
        return TrainSpec(
            steps=self.rounds,
            batch=self.batch,
            precision=self.precision,
            activation_checkpointing=self.activation_checkpointing,
            compile=self.compile,
        )


class Spec(TrialSpec):
    """Random tokens; ranked by the median over rounds of a step's time over the cascaded network's of that round.

    A row tells of all rounds so far. Nothing is saved: a trial that was interrupted is measured anew, as a whole.
    """

    workload: Literal["overhead"] = "overhead"
    model: LlamaSpec
    topology: AnyTopology
    optim: AnyOptim = AdamW(lr=1e-3)
    train: TimingSpec = TimingSpec()

    default_metric: ClassVar[str] = names.SLOWDOWN
    metrics: ClassVar[tuple[str, ...]] = (
        names.SLOWDOWN,
        names.SLOWDOWN_LOW,
        names.SLOWDOWN_HIGH,
        names.OVERHEAD_PARAMETERS,
        names.TOKENS_PER_S,
        names.CASCADED_TOKENS_PER_S,
        names.MFU,
        names.TRAIN_LOSS,
        *names.MEMORY,
        *(name + names.ESTIMATED for name in names.MEMORY),
        names.MEMORY_PEAK,
        names.CASCADED_ACTIVATIONS,
        names.CASCADED_PEAK,
    )

    @model_validator(mode="after")
    def _check(self) -> Spec:
        self.topology.check(self.model.depth)
        self.optim.check(self.model.shapes(self.topology))
        return self

    @property
    def total_steps(self) -> int:
        return self.train.rounds

    @property
    def baseline(self) -> LlamaSpec:
        """The model of the cascaded network, which connects blocks."""
        return self.model.model_copy(update={"granularity": "block"})

    def memory(self, model: LlamaSpec, topology: TopologySpec) -> dict[str, int]:
        """Bytes by names.MEMORY of one of the two networks."""
        return footprint.memory(model, topology, self.optim, self.train.training, self.train.sequence)

    def estimate(self) -> Estimate:
        """Both networks are there; one at a time has gradients and activations. FLOPs are those of the matrices."""
        model, train = self.model, self.train
        own, other = self.memory(model, self.topology), self.memory(self.baseline, Cascaded())
        kept = other[names.MEMORY_PARAMETERS] + other[names.MEMORY_OPTIMIZER]
        tokens = 2 * (train.rounds + train.warmup) * train.batch * train.sequence
        passing = footprint.passing(model, self.topology, train.training, train.sequence)
        return Estimate(
            params=model.num_params(),
            topology_params=model.num_coefficients(self.topology),
            flops=tokens * model.flops_per_token(train.sequence),
            memory=sum(own.values()) + kept + passing,
            disk=0,
            memory_parts=own,
        )

    def check_workers(self, workers: int) -> None:
        if workers > 1:
            raise ValueError(f"overhead is measured on one worker, got {workers}")

    def rows(self, place: Place) -> Iterator[Row]:
        import torch

        from models.allocator import keep_freed_memory
        from orchestrator.pretrain.overhead import Measurement

        torch.set_num_threads(place.threads)
        keep_freed_memory()
        yield from Measurement(self).rows()

"""How a diffusion transformer is trained and judged: the tables `train` and `evaluate` of a trial. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from models.sampling_spec import SamplingSpec
from models.spec import Spec
from orchestrator.image_metrics import SPLIT
from orchestrator.kinds import AnyFeatures, AnyImages


class TrainSpec(Spec):
    """How long, in what batches, at what rate and precision, and what is reported. Without further numbers: E.4."""

    steps: int = Field(default=400_000, ge=1)
    batch: int = Field(default=256, ge=1)  # images a step, over all workers
    micro_batch: int | None = Field(default=None, ge=1)  # images at once on one worker; none: its whole share
    warmup: float = Field(default=0.0, ge=0, le=1)  # fraction of the steps in which the rate rises to its peak
    final_lr: float = Field(default=1.0, ge=0, le=1)  # rate of the last step, as a fraction of the peak
    precision: Literal["fp32", "bf16-mixed"] = "fp32"  # bf16-mixed: float32 weights, bfloat16 products
    clip: float = Field(default=0.0, ge=0)  # largest gradient norm; 0: no clipping
    label_dropout: float = Field(default=0.1, ge=0, lt=1)  # share of images whose class is not told
    ema: float = Field(default=0.9999, ge=0, lt=1)  # decay of the average of all parameters, which draws images
    log_every: int = Field(default=100, ge=1)  # steps
    eval_every: int = Field(default=0, ge=0)  # steps; 0: only after the last one, which always evaluates
    checkpoint_every: int = Field(default=0, ge=0)  # steps; 0: never
    activation_checkpointing: bool = False
    compile: bool = Field(default=False, exclude_if=lambda on: not on)  # blocks by torch.compile

    @model_validator(mode="after")
    def _check(self) -> TrainSpec:
        if self.micro_batch and self.batch % self.micro_batch:
            near = max(n for n in range(1, min(self.micro_batch, self.batch) + 1) if self.batch % n == 0)
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch {self.batch}; {near} does")
        return self

    def check_workers(self, workers: int) -> None:
        """Raise ValueError, in one line, where so many workers cannot share a batch evenly."""
        if self.batch % workers:
            near = max(n for n in range(1, workers + 1) if self.batch % n == 0)
            raise ValueError(f"train.batch {self.batch} is not a multiple of {workers} workers; {near} would do")

    def short(self, workers: int) -> TrainSpec:
        """One worker's share of a step, reported after each."""
        often = {"log_every": 1, "eval_every": 0, "checkpoint_every": 0}
        return self.model_copy(update={"batch": self.batch // workers, **often})

    @property
    def evaluations(self) -> int:
        """How many there are in a run."""
        return -(-self.steps // self.eval_every) if self.eval_every else 1


class EvalSpec(Spec):
    """Images drawn with the averaged weights, compared with real ones in the eyes of a feature network.

    They are drawn without guidance, and once more with it where `sampling.cfg` is not 1.
    """

    samples: int = Field(default=50_000, ge=8, le=2**32)
    sampling: SamplingSpec = SamplingSpec()
    features: AnyFeatures
    # Real images, where those trained on are latents; none: those held out, or all where none are.
    reference: AnyImages | None = None
    vae: str | None = Field(default=None, min_length=1)  # of latents: the folder or hub name of what decodes them
    per_class: int = Field(default=8, ge=1, le=64)  # images of a class in the picture
    batch: int = Field(default=128, ge=1)  # images drawn at once on one worker

    @model_validator(mode="after")
    def _check_splits(self) -> EvalSpec:
        if self.samples % SPLIT == 1:
            raise ValueError(f"samples {self.samples} leave 1 in the last {SPLIT}; {self.samples + 1} would do")
        return self

    @property
    def scales(self) -> tuple[float, ...]:
        """Of guidance: 1, which is none, and what else there is."""
        return (1.0,) if self.sampling.cfg == 1 else (1.0, self.sampling.cfg)

    @property
    def forwards(self) -> int:
        """Of one image through the network, in one evaluation."""
        return self.samples * self.sampling.steps * (1 if len(self.scales) == 1 else 3)  # guided ones take two

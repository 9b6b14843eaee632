"""How a network is pre-trained: the tables `text` and `train` of a trial. No torch, no numpy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from models.spec import Spec

BPE_ALPHABET = 257  # the 256 bytes and the end-of-document token: the smallest byte-level vocabulary
BF16_WEIGHTS = ("pure-bf16", "bf16-stochastic")  # precisions


class TextSpec(Spec):
    """How documents become sequences of tokens."""

    sequence: int = Field(default=256, ge=1)  # predictions in one sequence
    # concat: documents, end to end, are cut every `sequence` tokens. none: one document a sequence, cut off or padded.
    packing: Literal["concat", "none"] = "concat"
    tokenizer: str = Field(default="bpe", min_length=1)  # bpe: trained on the training documents; else a tokenizer.json
    val_fraction: float = Field(default=0.1, gt=0, lt=1)  # of the documents, picked by the hash of their text


def _unless(default: Any) -> Any:
    """A field that is written out, and so decides a trial's identity, only where it is not `default`."""
    return Field(default=default, exclude_if=lambda value: value == default)


class TrainSpec(Spec):
    """How long, in what batches, at what rate and precision, how it is spread over workers, and what it reports."""

    steps: int = Field(ge=1)
    batch: int = Field(ge=1)  # sequences a step, over all workers
    micro_batch: int | None = Field(default=None, ge=1)  # sequences at once on one worker, at most; none: its share
    warmup: float = Field(default=0.1, ge=0, le=1)  # fraction of the steps in which the rate rises to its peak
    final_lr: float = Field(default=0.1, ge=0, le=1)  # rate of the last step, as a fraction of the peak
    # bf16-mixed: float32 weights, bfloat16 products. pure-bf16: weights, gradients and moments in bfloat16.
    # bf16-stochastic: bfloat16 weights that every step rounds up or down at random, so that small updates add up.
    precision: Literal["fp32", "bf16-mixed", "pure-bf16", "bf16-stochastic"] = "fp32"  # topology: float32 in all
    clip: float = Field(default=0.0, ge=0)  # largest gradient norm; 0: no clipping
    log_every: int = Field(default=10, ge=1)  # steps
    eval_every: int = Field(default=0, ge=0)  # steps; 0: only after the last one, which always evaluates
    eval_tokens: int | None = Field(default=None, ge=1)  # of held-out text; none: all
    checkpoint_every: int = Field(default=0, ge=0)  # steps; 0: never
    activation_checkpointing: bool = False
    # Blocks that are run again together, from the state before them; none: one, or a sparse topology's own segments.
    checkpoint_segment: Annotated[int, Field(ge=1)] | None = _unless(None)
    sharding: Literal["ddp", "fsdp"] = _unless("ddp")  # of several workers: all weights on each, or a part (FSDP2)
    stages: Annotated[int, Field(ge=1)] = _unless(1)  # of a pipeline: workers that have some of the blocks each
    layerwise: bool = _unless(False)  # step each weight in the backward pass and free its gradient at once
    compile: bool = _unless(False)  # blocks by torch.compile
    depths_every: Annotated[int, Field(ge=0)] = _unless(0)  # steps between looks into each depth; 0: none
    peak_flops: Annotated[float, Field(gt=0)] | None = _unless(None)  # FLOP/s of a device whose peak is not known

    @model_validator(mode="after")
    def _check(self) -> TrainSpec:
        if self.micro_batch and self.batch % self.micro_batch:
            near = max(n for n in range(1, min(self.micro_batch, self.batch) + 1) if self.batch % n == 0)
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch {self.batch}; {near} does")
        if self.layerwise and self.clip:
            raise ValueError(f"clip {self.clip:g} needs the whole gradient, which layerwise = true never holds at once")
        if self.layerwise and self.micro_batch not in (None, self.batch):
            raise ValueError(f"layerwise = true steps once for each micro_batch; {self.micro_batch} is not the batch")
        if self.checkpoint_segment and not self.activation_checkpointing:
            raise ValueError("checkpoint_segment is for activation_checkpointing = true")
        whole = {"sharding": "ddp", "checkpoint_segment": None, "layerwise": False, "compile": False, "depths_every": 0}
        for name, off in whole.items():
            if self.stages > 1 and getattr(self, name) != off:
                raise ValueError(f"{name} is not for pipelines; stages is {self.stages}")
        return self

    def check_workers(self, workers: int) -> None:
        """Raise ValueError, in one line, where so many workers cannot share a batch."""
        if workers % self.stages:
            raise ValueError(f"should be a multiple of train.stages, {self.stages}, got {workers}")
        workers //= self.stages
        if self.layerwise and workers > 1:
            raise ValueError(f"should be 1 where train.layerwise steps before workers share gradients, got {workers}")
        if workers > self.batch:
            raise ValueError(f"should be at most train.batch {self.batch}, got {workers}")
        if self.batch % workers:
            near = max(n for n in range(1, workers) if self.batch % n == 0)
            raise ValueError(f"train.batch {self.batch} is not a multiple of {workers} workers; {near} would do")
        share = self.batch // workers
        if share % self.at_once(workers):
            near = max(n for n in range(1, share) if share % n == 0 and n <= self.at_once(workers))
            raise ValueError(
                f"train.micro_batch {self.micro_batch} does not divide the {share} sequences of each of {workers} "
                f"workers; {near} does"
            )

    def short(self, workers: int) -> TrainSpec:
        """One replica's share of a step, on one worker, reported after each."""
        often = {"log_every": 1, "eval_every": 0, "checkpoint_every": 0, "depths_every": 0}
        return self.model_copy(update={"batch": self.batch * self.stages // workers, "stages": 1, **often})

    def at_once(self, replicas: int) -> int:
        """Sequences of a micro-batch where so many share a batch: what each has, or `micro_batch` of it."""
        share = -(-self.batch // replicas)
        return min(self.micro_batch or share, share)

"""How a network is pre-trained: the tables `text` and `train` of a trial. No torch, no numpy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from models.spec import Spec

BPE_ALPHABET = 257  # the 256 bytes and the end-of-document token: the smallest byte-level vocabulary


class TextSpec(Spec):
    """How documents become sequences of tokens."""

    sequence: int = Field(default=256, ge=1)  # predictions in one sequence
    # concat: documents, end to end, are cut every `sequence` tokens. none: one document a sequence, cut off or padded.
    packing: Literal["concat", "none"] = "concat"
    tokenizer: str = Field(default="bpe", min_length=1)  # bpe: trained on the training documents; else a tokenizer.json
    val_fraction: float = Field(default=0.1, gt=0, lt=1)  # of the documents, picked by the hash of their text


class TrainSpec(Spec):
    """How long, in what batches, at what rate and precision, and how often it reports."""

    steps: int = Field(ge=1)
    batch: int = Field(ge=1)  # sequences a step, over all workers
    micro_batch: int | None = Field(default=None, ge=1)  # sequences at once on one worker; none: its whole share
    warmup: float = Field(default=0.1, ge=0, le=1)  # fraction of the steps in which the rate rises to its peak
    final_lr: float = Field(default=0.1, ge=0, le=1)  # rate of the last step, as a fraction of the peak
    precision: Literal["fp32", "bf16-mixed"] = "fp32"  # topology coefficients are float32 in both
    clip: float = Field(default=0.0, ge=0)  # largest gradient norm; 0: no clipping
    log_every: int = Field(default=10, ge=1)  # steps
    eval_every: int = Field(default=0, ge=0)  # steps; 0: only after the last one, which always evaluates
    eval_tokens: int | None = Field(default=None, ge=1)  # of held-out text; none: all
    checkpoint_every: int = Field(default=0, ge=0)  # steps; 0: never
    activation_checkpointing: bool = False

    @model_validator(mode="after")
    def _check_micro_batch(self) -> TrainSpec:
        if self.micro_batch and self.batch % self.micro_batch:
            near = max(n for n in range(1, min(self.micro_batch, self.batch) + 1) if self.batch % n == 0)
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch {self.batch}; {near} does")
        return self

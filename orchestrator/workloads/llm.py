"""LLaMA pre-training: a decoder learns to predict the next token of a corpus (paper, section 5.1 and E.4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import model_validator

from analysis import names
from models.llama_spec import LlamaSpec
from orchestrator.kinds import AnyData, AnyOptim, AnyTopology
from orchestrator.pretrain.spec import BPE_ALPHABET, TextSpec, TrainSpec
from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec


class Spec(TrialSpec):
    """A LLaMA decoder on text; ranked by the perplexity of held-out documents."""

    workload: Literal["llm"] = "llm"
    model: LlamaSpec
    topology: AnyTopology
    optim: AnyOptim
    data: AnyData
    text: TextSpec = TextSpec()
    train: TrainSpec

    default_metric: ClassVar[str] = names.VAL_PERPLEXITY
    metrics: ClassVar[tuple[str, ...]] = (
        names.VAL_PERPLEXITY,
        names.VAL_LOSS,
        names.TRAIN_LOSS,
        "train/lr",
        "train/gradient_norm",
        "train/tokens_per_second",
    )

    @model_validator(mode="after")
    def _check(self) -> Spec:
        self.topology.check(self.model.depth)
        self.optim.check(self.model.shapes(self.topology))
        if self.text.tokenizer == "bpe" and self.model.vocab_size < BPE_ALPHABET:
            raise ValueError(
                f"model.vocab_size {self.model.vocab_size} is below {BPE_ALPHABET}, the fewest that tokenizer 'bpe' has"
            )
        return self

    @property
    def total_steps(self) -> int:
        return self.train.steps

    def estimate(self) -> Estimate:
        """Parameters are exact; FLOPs are those of training on full sequences; memory and disk follow by formula."""
        model, train = self.model, self.train
        params, mixing = model.num_params(), model.num_coefficients(self.topology)
        kept = self.optim.state_numbers(model.shapes(self.topology))
        state = (params + mixing + kept) * 4  # bytes: weights and what the optimizer keeps
        tokens = (train.micro_batch or train.batch) * self.text.sequence
        activations = model.activation_bytes(
            bfloat16=train.precision == "bf16-mixed", checkpoint=train.activation_checkpointing
        )
        logits = model.vocab_size * 4 * 2  # float32: the log-probabilities and their gradient
        return Estimate(
            params=params,
            topology_params=mixing,
            flops=train.steps * train.batch * self.text.sequence * model.flops_per_token(self.text.sequence),
            memory=state + (params + mixing) * 4 + tokens * (activations + logits),
            disk=3 * state if train.checkpoint_every else 0,  # the last two and the best
        )

    def check_workers(self, workers: int) -> None:
        if workers > self.train.batch:
            raise ValueError(f"should be at most train.batch {self.train.batch}, got {workers}")

    def prepare(self, cache: Path) -> None:
        from orchestrator.pretrain.tokens import prepare

        prepare(self.data, self.text, self.model.vocab_size, cache)

    def rows(self, place: Place) -> Iterator[Row]:
        import torch

        from orchestrator.pretrain.checkpoint import Checkpoints
        from orchestrator.pretrain.loop import Loop
        from orchestrator.pretrain.parallel import Workers
        from orchestrator.pretrain.sequences import Pass, Stream
        from orchestrator.pretrain.tokens import prepare

        torch.set_num_threads(place.threads)
        split = prepare(self.data, self.text, self.model.vocab_size, place.cache)
        workers = Workers.here()
        torch.manual_seed(self.seed)
        network = self.model.build(self.topology, checkpoint=self.train.activation_checkpointing).to(workers.device)
        loop = Loop(
            self.train,
            network,
            self.optim.build(network),
            Stream(split.train, self.text.sequence, self.text.packing, self.seed),
            Pass(split.held_out, self.text.sequence, self.text.packing),
            network.topologies(),
            workers,
            Checkpoints(place.folder / "checkpoints", {"trial": self.model_dump(mode="json"), "text": split.key}),
        )
        yield from loop.rows()

"""LLaMA pre-training: a decoder learns to predict the next token of a corpus (paper, section 5.1 and E.4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import model_validator

from analysis import names
from models.llama_spec import LlamaSpec
from models.stages import check_stages
from orchestrator.kinds import AnyData, AnyOptim, AnyTopology
from orchestrator.pretrain import footprint
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
        names.PERPLEXITY_GALORE_COMPAT,
        names.VAL_LOSS,
        names.TRAIN_LOSS,
        "train/lr",
        "train/gradient_norm",
        names.TOKENS_PER_S,
        names.MFU,
        names.MEMORY_PEAK,
        *names.MEMORY,
        *(name + names.ESTIMATED for name in names.MEMORY),
    )

    @model_validator(mode="after")
    def _check(self) -> Spec:
        self.topology.check(self.model.depth)
        self.optim.check(self.model.shapes(self.topology))
        if self.train.sharding == "fsdp" and not self.optim.shards:
            raise ValueError(
                f"optim {self.optim.kind!r} needs whole weights, which train.sharding 'fsdp' does not keep"
            )
        if self.train.checkpoint_segment:
            try:
                self.topology.check_segments(self.model.depth, self.train.checkpoint_segment)
            except ValueError as error:
                raise ValueError(f"train.checkpoint_segment: of topology {self.topology.kind!r}, {error}") from error
        if self.train.depths_every and self.model.granularity != "block":
            raise ValueError(f"train.depths_every needs model.granularity 'block', not {self.model.granularity!r}")
        check_stages(self.model, self.topology, self.train.stages)
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
        return self.estimate_on(1)

    def estimate_on(self, workers: int) -> Estimate:
        model, train, length = self.model, self.train, self.text.sequence
        memory = footprint.memory(model, self.topology, self.optim, train, length, workers)
        whole = footprint.memory(model, self.topology, self.optim, train.model_copy(update={"stages": 1}), length)
        kept = whole[names.MEMORY_PARAMETERS] + whole[names.MEMORY_OPTIMIZER]
        return Estimate(
            params=model.num_params(),
            topology_params=model.num_coefficients(self.topology),
            flops=train.steps * train.batch * length * model.flops_per_token(length),
            memory=sum(memory.values()) + footprint.passing(model, self.topology, train, length, workers),
            disk=3 * kept if train.checkpoint_every else 0,  # the last two and the best
            memory_parts=memory,
        )

    @property
    def elastic(self) -> bool:
        """A pipeline needs all of its stages."""
        return self.train.stages == 1

    @property
    def comparable_every(self) -> int:
        return math.lcm(self.train.checkpoint_every, self.train.eval_every)

    def check_workers(self, workers: int) -> None:
        self.train.check_workers(workers)

    def prepare(self, cache: Path) -> None:
        from orchestrator.pretrain.tokens import prepare

        prepare(self.data, self.text, self.model.vocab_size, cache)

    def short(self, workers: int) -> Spec:
        return self.model_copy(update={"train": self.train.short(workers)})

    def seconds(self, rows: Sequence[Row]) -> float:
        return super().seconds(rows) / self.train.stages

    def rows(self, place: Place) -> Iterator[Row]:
        import torch

        from models.allocator import keep_freed_memory
        from orchestrator.pretrain import trained
        from orchestrator.pretrain.checkpoint import Checkpoints
        from orchestrator.pretrain.loop import Loop
        from orchestrator.pretrain.parallel import Workers
        from orchestrator.pretrain.sequences import Pass, Stream
        from orchestrator.pretrain.tokens import prepare

        torch.set_num_threads(place.threads)
        keep_freed_memory()
        split = prepare(self.data, self.text, self.model.vocab_size, place.cache)
        workers = Workers.here()
        torch.manual_seed(self.seed)
        network = self.model.build(
            self.topology, checkpoint=self.train.activation_checkpointing, segment=self.train.checkpoint_segment
        )
        spread = trained.spread(network, self.train, self.text.sequence, workers)
        loop = Loop(
            self.train,
            spread,
            trained.optimizer(self.optim, spread, self.train),
            Stream(split.train, self.text.sequence, self.text.packing, self.seed),
            Pass(split.held_out, self.text.sequence, self.text.packing),
            spread.network.topologies(),
            workers,
            Checkpoints(
                place.folder / "checkpoints",
                {"trial": self.model_dump(mode="json"), "text": split.key},
                place.check,
            ),
            self.model.flops_per_token(self.text.sequence),
            self.estimate_on(workers.count).memory_parts,
        )
        yield from loop.rows()

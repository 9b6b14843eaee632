"""DiT pre-training: a transformer learns to remove noise from images of a class (paper, section 5.2 and E.4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import model_validator

from analysis import names
from models.dit_spec import DitSpec
from orchestrator.diffuse.spec import EvalSpec, TrainSpec
from orchestrator.kinds import AnyImages, AnyOptim, AnyTopology
from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec

NUMBER = 4  # bytes of a float32


class Spec(TrialSpec):
    """A class-conditional diffusion transformer on images or their latents; ranked by the FID of what it draws."""

    workload: Literal["dit"] = "dit"
    model: DitSpec
    topology: AnyTopology
    optim: AnyOptim
    images: AnyImages
    train: TrainSpec = TrainSpec()
    evaluate: EvalSpec

    default_metric: ClassVar[str] = names.VAL_FID
    metrics: ClassVar[tuple[str, ...]] = (
        *(names.VAL + name for name in names.IMAGE_METRICS),
        *(names.GUIDED + name for name in names.IMAGE_METRICS),
        names.VAL_LOSS,
        names.TRAIN_LOSS,
        "train/lr",
        "train/gradient_norm",
        names.IMAGES_PER_S,
        names.MFU,
        names.TIME_LEARN,
        names.TIME_EVALUATE,
        names.MEMORY_PEAK,
        *(name + end for name in (*names.MEMORY, names.MEMORY_AVERAGES) for end in ("", names.ESTIMATED)),
    )

    @model_validator(mode="after")
    def _check(self) -> Spec:
        self.topology.check(self.model.depth)
        self.optim.check(self.model.shapes(self.topology))
        self.evaluate.sampling.check(self.model)
        self.model.check_images(self.images.known.shape, self.images.known.num_classes)
        evaluate = self.evaluate
        if self.images.kind == "latents" and evaluate.vae is None:
            raise ValueError("evaluate.vae: should name the autoencoder that decodes images.kind 'latents'")
        if self.images.kind == "latents" and evaluate.reference is None:
            raise ValueError("evaluate.reference: should name the real images that images.kind 'latents' were made of")
        if self.images.kind != "latents" and evaluate.vae is not None:
            raise ValueError(f"evaluate.vae: only images.kind 'latents' are decoded, not {self.images.kind!r}")
        if not self.train.label_dropout and evaluate.sampling.cfg != 1:
            raise ValueError(
                f"evaluate.sampling.cfg {evaluate.sampling.cfg:g}: guidance needs images learned without their class; "
                "train.label_dropout 0 leaves none, so it should be 1"
            )
        return self

    @property
    def total_steps(self) -> int:
        return self.train.steps

    def estimate(self) -> Estimate:
        """Parameters are exact; FLOPs are of training and of drawing images; memory and disk follow by formula."""
        model, train, memory = self.model, self.train, self._memory()
        kept = sum(memory[name] for name in (names.MEMORY_PARAMETERS, names.MEMORY_AVERAGES, names.MEMORY_OPTIMIZER))
        forward = model.flops_per_image() // 3
        return Estimate(
            params=model.num_params(),
            topology_params=model.num_coefficients(self.topology),
            flops=3 * forward * train.steps * train.batch + forward * self.evaluate.forwards * train.evaluations,
            memory=sum(memory.values()),
            disk=3 * kept if train.checkpoint_every else 0,  # the last two and the best
            memory_parts=memory,
        )

    def _memory(self) -> dict[str, int]:
        """Bytes by category, of one worker that has one micro-batch."""
        model, train = self.model, self.train
        shapes = model.shapes(self.topology)
        weights = NUMBER * sum(shape.numbers for shape in shapes)
        kept = model.activation_bytes(bfloat16=train.precision != "fp32", checkpoint=train.activation_checkpointing)
        return {
            names.MEMORY_PARAMETERS: weights,
            names.MEMORY_GRADIENTS: weights,
            names.MEMORY_AVERAGES: weights,
            names.MEMORY_OPTIMIZER: NUMBER * self.optim.state_numbers(shapes),
            names.MEMORY_ACTIVATIONS: (train.micro_batch or train.batch) * kept,
        }

    @property
    def comparable_every(self) -> int:
        return math.lcm(self.train.checkpoint_every, self.train.eval_every)

    def check_workers(self, workers: int) -> None:
        self.train.check_workers(workers)
        if workers > self.evaluate.samples:
            raise ValueError(f"should be at most evaluate.samples {self.evaluate.samples}, got {workers}")

    def prepare(self, cache: Path) -> None:
        from orchestrator.diffuse.prepared import prepare
        from orchestrator.pretrain.parallel import Workers

        prepare(self.images, self.evaluate, self.model, cache, str(Workers.here().device))

    def short(self, workers: int) -> Spec:
        return self.model_copy(update={"train": self.train.short(workers)})

    def seconds(self, rows: Sequence[Row]) -> float:
        """Images are drawn as fast as they are learned from."""
        learning = self.model.flops_per_image() * self.train.steps * self.train.batch
        return super().seconds(rows) * self.estimate().flops / learning

    def rows(self, place: Place) -> Iterator[Row]:
        import torch

        from models.diffusion import linear
        from orchestrator.diffuse.batches import Batches
        from orchestrator.diffuse.decode import decoder
        from orchestrator.diffuse.denoiser import Denoiser
        from orchestrator.diffuse.evaluate import Judge
        from orchestrator.diffuse.loop import Loop
        from orchestrator.diffuse.prepared import prepare
        from orchestrator.image_shards.stream import Stream
        from orchestrator.pretrain.checkpoint import Checkpoints
        from orchestrator.pretrain.parallel import Workers
        from orchestrator.pretrain.replica import Replica

        torch.set_num_threads(place.threads)
        train, workers = self.train, Workers.here()
        device = str(workers.device)
        ready = prepare(self.images, self.evaluate, self.model, place.cache, device)
        torch.manual_seed(self.seed)
        network = self.model.build(self.topology, checkpoint=train.activation_checkpointing).to(workers.device)
        if train.compile:
            for block in network.stack.blocks:
                block.compile()
        schedule = linear().to(workers.device)
        mixed = train.precision == "bf16-mixed"
        stream = Stream(ready.split.train, self.seed)
        decode = decoder(self.images, self.evaluate.vae, device)
        loop = Loop(
            train,
            Replica(Denoiser(network, schedule), workers, tuple, mixed=mixed),
            self.optim.build(network),
            Batches(stream, train.batch, train.label_dropout, workers.rank, workers.count),
            ready.split.held_out,
            Judge(self.evaluate, schedule, ready.features, ready.real, decode, workers, mixed=mixed),
            Checkpoints(place.folder / "checkpoints", self.model_dump(mode="json"), place.check),
            ready.key,
            self.model.flops_per_image(),
            self.estimate().memory_parts,
        )
        yield from loop.rows()

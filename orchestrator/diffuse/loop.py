"""The training loop of diffusion transformers: what happens in a step, and what is reported. When: `steps.py`.

Nothing in a step draws from a generator that would have to be saved (`batches.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from analysis import names
from models.ema import Ema
from orchestrator.diffuse.batches import Batch, Batches, held_out
from orchestrator.diffuse.denoiser import Denoiser
from orchestrator.diffuse.evaluate import Judge
from orchestrator.diffuse.spec import TrainSpec
from orchestrator.errors import Diverged, InputError
from orchestrator.images.base import Images
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.pretrain.loader import Ahead
from orchestrator.pretrain.measure import Memory, peak_flops
from orchestrator.pretrain.rate import rate
from orchestrator.pretrain.replica import Replica
from orchestrator.pretrain.sharded import Saver
from orchestrator.pretrain.steps import Steps
from orchestrator.workloads.base import Row

EMA = "ema"  # the averages in a checkpoint, under "extra"


@dataclass
class Progress:
    """Where a run is. The sums are since the last report."""

    step: int = 0
    loss: float = 0.0  # sum over images
    images: int = 0
    seconds: float = 0.0  # of training alone
    gradient_norm: float = 0.0  # of the last step


class Loop(Steps[TrainSpec, Progress]):
    """Trains a denoiser, with the steps of all workers kept alike.

    Args:
        replica: the denoiser on its workers.
        optimizer: of its network, at its peak rate.
        held_out: images that val/loss is measured on; there may be none.
        key: of the images, which a checkpoint must share.
        flops: of training on one image.
        estimated: what the plan says of this trial's memory, to be reported beside what is measured.
    """

    def __init__(
        self,
        train: TrainSpec,
        replica: Replica[Denoiser, Batch],
        optimizer: torch.optim.Optimizer,
        batches: Batches,
        held_out: Images,
        judge: Judge,
        checkpoints: Checkpoints,
        key: str,
        flops: float,
        estimated: Mapping[str, float],
    ) -> None:
        network, workers = replica.network.network, replica.workers
        super().__init__(train, Progress(), optimizer, workers, Saver(checkpoints, workers, network, optimizer))
        self.replica, self.network, self.held_out, self.judge, self.key = replica, network, held_out, judge, key
        self.flops, self.estimated = flops, estimated
        self.ema = Ema(network, train.ema)
        self._restore(checkpoints)
        self.memory: Memory | None = Memory(self.network, optimizer, self.workers.device)  # until it has been reported
        self.size = train.micro_batch or self.workers.most(train.batch)  # images of a micro-batch
        self.ahead = Ahead(batches.at)

    def _save(self) -> None:
        self.saver.save(self.progress.step, self._averages(), {"progress": asdict(self.progress), "images": self.key})

    def _close(self) -> None:
        self.ahead.close()

    def _advance(self) -> None:
        train, progress = self.train, self.progress
        self._set_rate()
        if self.memory and not self.memory.activations:
            self.memory.watch()
        parts = self.ahead.at(progress.step).to(self.workers.device).split(self.size)
        loss = self.replica.step(parts, 1 / train.batch)
        norm = self.replica.gradient_norm()
        loss_sum = self._finite(loss, norm, self.network, lambda: self.replica.evaluate(parts))
        if train.clip:
            self.replica.clip(train.clip, norm)
        if self.memory:
            self.memory.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.ema.update(self.network)
        progress.step += 1
        progress.loss += loss_sum
        progress.images += train.batch

    def _report(self) -> Row:
        progress, workers = self.progress, self.workers
        seconds = sum(workers.all(progress.seconds)) / workers.count
        speed = progress.images / seconds
        metrics = {
            names.TRAIN_LOSS: progress.loss / progress.images,
            "train/lr": self.peaks[0] * rate(progress.step - 1, self.train),
            "train/gradient_norm": progress.gradient_norm,
            names.IMAGES_PER_S: speed,
            names.TIME_LEARN: seconds,
        }
        if peak := peak_flops(workers.device, None):
            metrics[names.MFU] = speed * self.flops / (peak * workers.count)
        if self.memory and self.memory.activations:
            planned = {f"{key}{names.ESTIMATED}": float(size) for key, size in self.estimated.items()}
            averages = sum(average.nbytes for average in self.ema.averages.values())
            metrics |= self.memory.metrics() | {names.MEMORY_AVERAGES: float(averages)} | planned
            self.memory = None
        progress.loss, progress.images, progress.seconds = 0.0, 0, 0.0
        return self._judged(metrics) if self._due(self.train.eval_every) else Row(progress.step, metrics)

    def _judged(self, metrics: dict[str, float]) -> Row:
        """A report with an evaluation of the averaged weights."""
        started = time.perf_counter()
        self.network.eval()
        with self.ema.applied(self.network):
            loss = self._held_out_loss()
            found, picture = self.judge(self.network)
        self.network.train()
        if not all(map(math.isfinite, (*loss.values(), *found.values()))):
            raise Diverged(self.progress.step, "an image drawn with the averaged weights")
        self.saver.note(self.progress.step, found[names.VAL_FID])
        metrics |= loss | found | {names.TIME_EVALUATE: time.perf_counter() - started}
        snapshots = {name: topology.snapshot() for name, topology in self.network.topologies().items()}
        return Row(self.progress.step, metrics, snapshots, files={names.SAMPLES_FILE: picture})

    def _held_out_loss(self) -> dict[str, float]:
        """The mean over held-out images; nothing where there are none."""
        most, workers = min(self.judge.spec.samples, len(self.held_out)), self.workers
        if not most:
            return {}
        total = torch.zeros((), dtype=torch.float64, device=workers.device)
        for batch in held_out(self.held_out, most, self.size, workers.rank, workers.count):
            total += self.replica.evaluate([batch.to(workers.device)]).sum()
        return {names.VAL_LOSS: workers.total(total).item() / most}

    def _averages(self) -> dict[str, Tensor]:
        return {f"{EMA}.{name}": average for name, average in self.ema.state_dict().items()}

    def _restore(self, checkpoints: Checkpoints) -> None:
        """Go on from the newest valid checkpoint, which worker 0 picks for all.

        Raises:
            InputError: it was trained on other images.
        """
        step = self.saver.newest()
        if step is None:
            return
        about = self.saver.load(step, self._averages())
        if about["images"] != self.key:
            raise InputError(f"{checkpoints.path(step)} belongs to another trial: its images have changed since")
        self.progress = Progress(**about["progress"])

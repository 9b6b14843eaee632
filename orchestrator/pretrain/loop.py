"""The training loop of next-token networks: what happens in a step, and what is reported when.

A step waits for the device once, to see that its loss and gradient are finite; the next batch is put together
meanwhile. A checkpoint is taken before the report of its step and written while training goes on. A resumed run begins
with the report of its checkpoint's step: none is ever lost, those since that step come twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from analysis import names
from models.optim.layerwise import LayerwiseSteps
from models.stack import Topology
from orchestrator.errors import Diverged
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.pretrain.depths import Depths
from orchestrator.pretrain.diagnosis import first_bad
from orchestrator.pretrain.loader import Loader
from orchestrator.pretrain.measure import Memory, peak_flops
from orchestrator.pretrain.parallel import Gradients, Workers
from orchestrator.pretrain.sequences import PAD, Numbers, Pass, Stream
from orchestrator.pretrain.sharded import Saver
from orchestrator.pretrain.spec import TrainSpec
from orchestrator.workloads.base import Row


@dataclass
class Progress:
    """Where a run is. The sums are since the last report."""

    step: int = 0
    loss: float = 0.0  # sum over tokens
    tokens: int = 0
    seconds: float = 0.0  # of training alone
    gradient_norm: float = 0.0  # of the last step
    depths: dict[str, list[float]] | None = None  # of the last step that was looked into


def rate(step: int, train: TrainSpec) -> float:
    """The learning rate of step 0 .. steps - 1 over its peak: linear up, then half a cosine down to final_lr."""
    rising = round(train.warmup * train.steps)
    if step < rising:
        return (step + 1) / rising
    way = (step - rising) / max(1, train.steps - 1 - rising)
    return train.final_lr + (1 - train.final_lr) * (1 + math.cos(math.pi * way)) / 2


class Loop:
    """Trains `network` on `stream`, with the steps of all `workers` kept alike.

    Args:
        network: token numbers (batch, length) to logits (batch, length, vocabulary), on the workers' device; sharded
            where it is to be.
        optimizer: of the network, at its peak rate.
        held_out: what val/loss is measured on.
        topologies: the network's topologies by name, reported with each evaluation.
        flops: of training on one token.
        estimated: what the plan says of this trial's memory, to be reported beside what is measured.
    """

    def __init__(
        self,
        train: TrainSpec,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        stream: Stream,
        held_out: Pass,
        topologies: Mapping[str, Topology],
        workers: Workers,
        checkpoints: Checkpoints,
        flops: float,
        estimated: Mapping[str, float],
    ) -> None:
        self.train, self.network, self.optimizer, self.workers = train, network, optimizer, workers
        self.held_out, self.topologies, self.checkpoints = held_out, topologies, checkpoints
        self.flops, self.estimated = flops, estimated
        self.peaks = [group["lr"] for group in optimizer.param_groups]
        self.progress = Progress()
        self.saver = Saver(checkpoints, workers, network, optimizer)
        self._restore()
        self.gradients = Gradients(network, workers)
        alone = train.layerwise or train.precision == "bf16-stochastic"  # which widens what is stepped at once
        self.steps = LayerwiseSteps(optimizer, in_backward=train.layerwise) if alone else None
        self.depths = Depths(network.stack) if train.depths_every else None
        self.memory: Memory | None = Memory(network, optimizer, workers.device)  # until it has been reported
        self.loader = Loader(stream, train.batch, workers.rank, workers.count)
        self.windows = self.loader.windows(self.progress.step)  # this worker's, (sequences, length + 1)
        self.tokens = int(workers.total(torch.tensor(_predicted(self.windows), dtype=torch.float64)))  # all workers'

    def rows(self) -> Iterator[Row]:
        """Train to the last step, reporting on the way; every worker iterates, and each gets the same rows.

        Raises:
            Diverged: the loss or its gradient became non-finite; the weights are those before that step.
        """
        train, progress = self.train, self.progress
        try:
            if progress.step and self._due(train.log_every, train.eval_every):
                yield self._report()
            while progress.step < train.steps:
                started = time.perf_counter()
                self._advance()
                progress.seconds += time.perf_counter() - started
                if train.checkpoint_every and self._due(train.checkpoint_every):
                    self.saver.save(progress.step, self._random(), {"progress": asdict(progress)})
                if self._due(train.log_every, train.eval_every):
                    yield self._report()
            self.saver.wait()
        finally:
            self.loader.close()
            self.saver.close()

    def _due(self, *intervals: int) -> bool:
        """Whether something done every so many steps, and after the last, is done now."""
        step = self.progress.step
        return step == self.train.steps or any(every and step % every == 0 for every in intervals)

    def _advance(self) -> None:
        train, progress, workers = self.train, self.progress, self.workers
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * rate(progress.step, train)
        parts, tokens = self._parts(self.windows, workers.most(train.batch)), self.tokens
        loss = self._backward(parts)
        norm = self.steps.gradient_norm() if self.steps and train.layerwise else self.gradients.norm()
        self.windows = self.loader.windows(progress.step + 1)
        sums = workers.total(torch.stack((loss.double(), loss.new_tensor(_predicted(self.windows)).double())))
        loss_sum, following, progress.gradient_norm = torch.cat((sums, norm.double().view(1))).tolist()  # waits
        if not math.isfinite(loss_sum + progress.gradient_norm):
            raise Diverged(progress.step + 1, self._first_bad(parts))
        if train.clip:
            self.gradients.clip(train.clip, norm)
        if self.depths and (progress.step + 1) % train.depths_every == 0:
            progress.depths = self.depths.finish()
        (self.steps or self.optimizer).step()
        self.optimizer.zero_grad(set_to_none=True)
        self.tokens = int(following)
        progress.step += 1
        progress.loss += loss_sum
        progress.tokens += tokens

    def _backward(self, parts: list[Tensor]) -> Tensor:
        """Leave the gradient of the step in place; returns the summed loss of this worker's parts."""
        scale = self.workers.count / self.tokens  # gradients are averaged over workers
        total = torch.zeros((), device=self.workers.device)
        for number, part in enumerate(parts, start=1):
            with self.gradients.part(last=number == len(parts)):
                loss = self._watched(part) if number == 1 else self._loss(self.gradients.forward, part)
                (loss * scale).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self.gradients.finish()
        if self.memory:
            self.memory.backward()
        return total

    def _watched(self, part: Tensor) -> Tensor:
        """The loss of a step's first part, looked into on the way where that is due."""
        look = self.depths and (self.progress.step + 1) % self.train.depths_every == 0
        with self.depths.watch() if self.depths and look else nullcontext():
            if self.memory and not self.memory.seen:
                return self.memory.forward(lambda: self._loss(self.gradients.forward, part))
            return self._loss(self.gradients.forward, part)

    def _parts(self, windows: Numbers, most: int) -> list[Tensor]:
        """Micro-batches of windows, each as long as its longest, on the device.

        As many on every worker, where one has at `most` so many windows: sharded weights are gathered by all at once.
        """
        size = self.train.micro_batch or most
        parts = [windows[start : start + size] for start in range(0, len(windows), size)]
        parts += [np.full_like(self.windows[:1], PAD)] * (math.ceil(most / size) - len(parts))
        return [self._moved(part[:, : max(2, int((part != PAD).sum(1).max(initial=0)))]) for part in parts]

    def _moved(self, windows: Numbers) -> Tensor:
        host, device = torch.from_numpy(np.ascontiguousarray(windows)), self.workers.device
        return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host

    def _loss(self, network: nn.Module, windows: Tensor) -> Tensor:
        """The summed loss of the predictions in windows (sequences, length + 1)."""
        mixed = self.train.precision == "bf16-mixed"
        with torch.autocast(self.workers.device.type, torch.bfloat16, enabled=mixed):
            logits = network(windows[:, :-1].clamp(min=0))
        return cross_entropy(logits.flatten(0, 1).float(), windows[:, 1:].flatten(), ignore_index=PAD, reduction="sum")

    @torch.no_grad()
    def _held_out_loss(self) -> tuple[float, float]:
        """The mean over the held-out tokens, each predicted once; and as GaLore's code reckons it.

        That is the sum of the batches' means over their number plus one, so it depends on the batch, and reads low.
        """
        workers, size = self.workers, self.train.micro_batch or self.workers.most(self.train.batch)
        count = self.held_out.first(self.train.eval_tokens)
        sums = torch.zeros(4, dtype=torch.float64, device=workers.device)  # loss, tokens, means of batches, batches
        self.network.eval()
        for start in range(0, count, workers.count * size):
            own = np.arange(start + workers.rank * size, min(start + (workers.rank + 1) * size, count))
            (part,) = self._parts(self.held_out.windows(own), size)
            loss, tokens = self._loss(self.network, part).double(), int((part[:, 1:] != PAD).sum())
            sums += torch.stack([loss, *loss.new_tensor([tokens, 0, tokens > 0])])
            sums[2] += loss / max(tokens, 1)
        self.network.train()
        loss_sum, tokens, means, batches = workers.total(sums).tolist()
        return loss_sum / tokens, means / (batches + 1)

    def _report(self) -> Row:
        progress = self.progress
        seconds = sum(self.workers.all(progress.seconds)) / self.workers.count
        speed = progress.tokens / seconds
        metrics = {
            names.TRAIN_LOSS: progress.loss / progress.tokens,
            "train/lr": self.peaks[0] * rate(progress.step - 1, self.train),
            "train/gradient_norm": progress.gradient_norm,
            names.TOKENS_PER_S: speed,
        }
        if peak := peak_flops(self.workers.device, self.train.peak_flops):
            metrics[names.MFU] = speed * self.flops / (peak * self.workers.count)
        if self.memory and self.memory.seen:
            metrics |= self.memory.metrics() | {f"{key}{names.ESTIMATED}": size for key, size in self.estimated.items()}
            self.memory = None
        depths, progress.depths = progress.depths, None
        progress.loss, progress.tokens, progress.seconds = 0.0, 0, 0.0
        if not self._due(self.train.eval_every):
            return Row(progress.step, metrics, depths=depths)
        loss, galore = self._held_out_loss()
        if not math.isfinite(loss):
            raise Diverged(progress.step, "the held-out loss")
        self.saver.note(progress.step, loss)
        metrics |= {
            names.VAL_LOSS: loss,
            names.VAL_PERPLEXITY: _perplexity(loss),
            names.PERPLEXITY_GALORE_COMPAT: _perplexity(galore),
        }
        snapshots = {name: topology.snapshot() for name, topology in self.topologies.items()}
        return Row(progress.step, metrics, snapshots, depths=depths)

    def _random(self) -> dict[str, Tensor]:
        """The state of the random numbers, which every worker draws alike."""
        states = {"random.cpu": torch.get_rng_state()}
        if self.workers.device.type == "cuda":
            states["random.cuda"] = torch.cuda.get_rng_state()
        return states

    def _restore(self) -> None:
        """Go on from the newest valid checkpoint, which worker 0 picks for all."""
        step = self.workers.all(self.checkpoints.newest() if self.workers.rank == 0 else None)[0]
        if step is None:
            return
        random = self._random()
        about = self.saver.load(step, random)
        self.progress = Progress(**about["progress"])
        torch.set_rng_state(random["random.cpu"])
        if self.workers.device.type == "cuda":
            torch.cuda.set_rng_state(random["random.cuda"])

    def _first_bad(self, parts: list[Tensor]) -> str:
        """Where the last step went wrong, as the first worker that can tell says."""
        found = first_bad(self.network, lambda: [self._loss(self.network, part) for part in parts])
        return next((place for place in self.workers.all(found) if place), "the loss")


def _predicted(windows: Numbers) -> int:
    """How many tokens of windows (sequences, length + 1) are predicted."""
    return int((windows[:, 1:] != PAD).sum())


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf

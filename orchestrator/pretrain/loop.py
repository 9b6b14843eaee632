"""The training loop of next-token networks: what happens in a step, and what is reported when.

A step waits for the device once, to see that its loss and gradient are finite; the next batch is put together
meanwhile. A checkpoint is saved before the report of its step, and a resumed run begins with that report: none is ever
lost, one may come twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from analysis import names
from models.stack import Topology
from orchestrator.errors import Diverged
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.pretrain.diagnosis import first_bad
from orchestrator.pretrain.parallel import Workers, unsynced
from orchestrator.pretrain.sequences import PAD, Numbers, Pass, Stream
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
        network: token numbers (batch, length) to logits (batch, length, vocabulary), on the workers' device.
        optimizer: of the network, at its peak rate.
        held_out: what val/loss is measured on.
        topologies: the network's topologies by name, reported with each evaluation.
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
    ) -> None:
        self.train, self.network, self.optimizer, self.workers = train, network, optimizer, workers
        self.stream, self.held_out, self.topologies, self.checkpoints = stream, held_out, topologies, checkpoints
        self.parameters = [*network.parameters()]
        self.peaks = [group["lr"] for group in optimizer.param_groups]
        self.progress = Progress()
        self._restore()
        self.trained = workers.wrap(network)
        self.windows = self._batch(self.progress.step)

    def rows(self) -> Iterator[Row]:
        """Train to the last step, reporting on the way; every worker iterates, and each gets the same rows.

        Raises:
            Diverged: the loss or its gradient became non-finite; the weights are those before that step.
        """
        train, progress = self.train, self.progress
        if progress.step and self._due(train.log_every, train.eval_every):
            yield self._report()
        while progress.step < train.steps:
            started = time.perf_counter()
            self._advance()
            progress.seconds += time.perf_counter() - started
            if train.checkpoint_every and self._due(train.checkpoint_every) and self.workers.rank == 0:
                self.checkpoints.save(progress.step, self._state())
            if self._due(train.log_every, train.eval_every):
                yield self._report()

    def _due(self, *intervals: int) -> bool:
        """Whether something done every so many steps, and after the last, is done now."""
        step = self.progress.step
        return step == self.train.steps or any(every and step % every == 0 for every in intervals)

    def _batch(self, step: int) -> Numbers:
        """The windows of a step, over all workers: (batch, length + 1)."""
        return self.stream.windows(step * self.train.batch, self.train.batch)

    def _advance(self) -> None:
        train, progress, workers = self.train, self.progress, self.workers
        tokens = int((self.windows[:, 1:] != PAD).sum())
        parts = self._parts(workers.share(self.windows))
        losses = torch.zeros((), device=workers.device)
        for number, part in enumerate(parts, start=1):
            with unsynced(self.trained, last=number == len(parts)):
                loss = self._loss(self.trained, part)
                (loss * (workers.count / tokens)).backward()  # type: ignore[no-untyped-call]
            losses += loss.detach()
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients, foreach=True)
        self.windows = self._batch(progress.step + 1)
        loss_sum, progress.gradient_norm = torch.stack((workers.total(losses), norm)).tolist()  # waits for the device
        if not math.isfinite(loss_sum + progress.gradient_norm):
            raise Diverged(progress.step + 1, self._first_bad(parts))
        if train.clip:
            nn.utils.clip_grads_with_norm_(self.parameters, train.clip, norm, foreach=True)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * rate(progress.step, train)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        progress.loss += loss_sum
        progress.tokens += tokens

    def _parts(self, windows: Numbers) -> list[Tensor]:
        """Micro-batches of windows, each as long as its longest, on the device."""
        size = self.train.micro_batch or len(windows)
        parts = [windows[start : start + size] for start in range(0, len(windows), size)]
        return [self._moved(part[:, (part != PAD).any(0)]) for part in parts]

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
    def _held_out_loss(self) -> float:
        """The mean over the held-out tokens, each predicted once."""
        numbers = np.arange(self.held_out.first(self.train.eval_tokens))
        size = self.train.micro_batch or self.train.batch
        sums = torch.zeros(2, dtype=torch.float64, device=self.workers.device)
        self.network.eval()
        for start in range(self.workers.rank * size, len(numbers), self.workers.count * size):
            windows = self.held_out.windows(numbers[start : start + size])
            (part,) = self._parts(windows)
            sums[0] += self._loss(self.network, part)
            sums[1] += int((windows[:, 1:] != PAD).sum())
        self.network.train()
        sums = self.workers.total(sums)
        return float(sums[0] / sums[1])

    def _report(self) -> Row:
        progress = self.progress
        seconds = sum(self.workers.all(progress.seconds)) / self.workers.count
        metrics = {
            names.TRAIN_LOSS: progress.loss / progress.tokens,
            "train/lr": self.peaks[0] * rate(progress.step - 1, self.train),
            "train/gradient_norm": progress.gradient_norm,
            "train/tokens_per_second": progress.tokens / seconds,
        }
        progress.loss, progress.tokens, progress.seconds = 0.0, 0, 0.0
        if not self._due(self.train.eval_every):
            return Row(progress.step, metrics)
        loss = self._held_out_loss()
        if not math.isfinite(loss):
            raise Diverged(progress.step, "the held-out loss")
        if self.workers.rank == 0:
            self.checkpoints.note(progress.step, loss)
        metrics |= {names.VAL_LOSS: loss, names.VAL_PERPLEXITY: math.exp(loss) if loss < 700 else math.inf}
        return Row(progress.step, metrics, {name: topology.snapshot() for name, topology in self.topologies.items()})

    def _state(self) -> dict[str, Any]:
        cuda = self.workers.device.type == "cuda"
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progress": asdict(self.progress),
            "random": {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state() if cuda else None},
        }

    def _restore(self) -> None:
        """Go on from the newest valid checkpoint, which worker 0 picks for all."""
        step = self.workers.all(self.checkpoints.newest() if self.workers.rank == 0 else None)[0]
        if step is None:
            return
        state = self.checkpoints.load(step)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])
        torch.set_rng_state(state["random"]["cpu"])
        if self.workers.device.type == "cuda" and state["random"]["cuda"] is not None:
            torch.cuda.set_rng_state(state["random"]["cuda"])

    def _first_bad(self, parts: list[Tensor]) -> str:
        """Where the last step went wrong, as the first worker that can tell says."""
        found = first_bad(self.network, lambda: [self._loss(self.network, part) for part in parts])
        return next((place for place in self.workers.all(found) if place), "the loss")

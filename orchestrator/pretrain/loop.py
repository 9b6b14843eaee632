"""The training loop of next-token networks: what happens in a step, and what is reported. When: `steps.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis import names
from models.llama import Llama
from models.optim.layerwise import LayerwiseSteps
from models.stack import Topology
from orchestrator.errors import Diverged, InputError
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.pretrain.depths import Depths
from orchestrator.pretrain.loader import Loader
from orchestrator.pretrain.measure import Memory, peak_flops
from orchestrator.pretrain.parallel import Spread, Workers
from orchestrator.pretrain.rate import rate
from orchestrator.pretrain.sequences import PAD, Numbers, Pass, Stream
from orchestrator.pretrain.sharded import Saver
from orchestrator.pretrain.spec import TrainSpec
from orchestrator.pretrain.steps import Steps
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


class Loop(Steps[TrainSpec, Progress]):
    """Trains a network on `stream`, with the steps of all `workers` kept alike.

    Args:
        spread: the network over its workers.
        optimizer: of what this worker trains of it, at its peak rate.
        held_out: what val/loss is measured on.
        topologies: the network's topologies by name, reported with each evaluation.
        flops: of training on one token.
        estimated: what the plan says of this trial's memory, to be reported beside what is measured.
    """

    def __init__(
        self,
        train: TrainSpec,
        spread: Spread,
        optimizer: torch.optim.Optimizer,
        stream: Stream,
        held_out: Pass,
        topologies: Mapping[str, Topology],
        workers: Workers,
        checkpoints: Checkpoints,
        flops: float,
        estimated: Mapping[str, float],
    ) -> None:
        super().__init__(train, Progress(), optimizer, workers, Saver(checkpoints, workers, spread.network, optimizer))
        self.spread, self.held_out, self.topologies = spread, held_out, topologies
        self.flops, self.estimated = flops, estimated
        self._restore()
        alone = train.layerwise or train.precision == "bf16-stochastic"  # which widens what is stepped at once
        in_backward = spread.network.parameters() if train.layerwise else ()
        self.one_by_one = LayerwiseSteps(optimizer, in_backward) if alone else None
        self.depths = Depths(spread.network) if train.depths_every and isinstance(spread.network, Llama) else None
        self.memory: Memory | None = Memory(spread.network, optimizer, workers.device)  # until it has been reported
        replicas = spread.replicas
        self.size = train.at_once(replicas.count)  # sequences of a micro-batch
        self.loader = Loader(stream, train.batch, replicas.rank, replicas.count)

    def _save(self) -> None:
        self.saver.save(self.progress.step, self._random(), {"progress": asdict(self.progress)})

    def _close(self) -> None:
        self.loader.close()

    def _advance(self) -> None:
        train, progress = self.train, self.progress
        self._set_rate()
        depths = self.depths if train.depths_every and (progress.step + 1) % train.depths_every == 0 else None
        if depths:
            depths.watch()
        if self.memory and not self.memory.activations:
            self.memory.watch()
        tokens = self.loader.predictions(progress.step)
        parts = self._parts(self.loader.windows(progress.step), self.spread.replicas.most(train.batch))
        loss = self.spread.step(parts, 1 / tokens)
        norm = self.one_by_one.gradient_norm() if self.one_by_one and train.layerwise else self.spread.gradient_norm()
        loss_sum = self._finite(loss, norm, self.spread.network, lambda: self.spread.evaluate(parts))
        if train.clip:
            self.spread.clip(train.clip, norm)
        if depths:
            progress.depths = depths.finish()
        if self.memory:
            self.memory.backward()
        self._step()
        self.optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        progress.loss += loss_sum
        progress.tokens += tokens

    def _step(self) -> None:
        if self.one_by_one is None:
            self.optimizer.step()
        else:
            self.one_by_one.step()
            self.one_by_one.norms.clear()

    def _parts(self, windows: Numbers, most: int) -> list[Tensor]:
        """Micro-batches of windows, each as long as its longest, on the device.

        As many on every worker, where one has at `most` so many windows: sharded weights are gathered by all at once.
        """
        parts = [windows[start : start + self.size] for start in range(0, len(windows), self.size)]
        parts += [np.full((1, windows.shape[1]), PAD)] * (math.ceil(most / self.size) - len(parts))
        return [self._moved(part[:, : max(2, int((part != PAD).sum(1).max()))]) for part in parts]

    def _moved(self, windows: Numbers) -> Tensor:
        host, device = torch.from_numpy(np.ascontiguousarray(windows)), self.workers.device
        return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host

    def _held_out_loss(self) -> tuple[float, float]:
        """The mean over the held-out tokens, each predicted once; and as GaLore's code reckons it.

        That is the sum of the batches' means over their number plus one, so it depends on the batch, and reads low.
        """
        replicas, size = self.spread.replicas, self.size
        count = self.held_out.first(self.train.eval_tokens)
        sums = torch.zeros(4, dtype=torch.float64, device=self.workers.device)  # loss, tokens, means, batches
        self.spread.network.eval()
        for start in range(0, count, replicas.count * size):
            own = np.arange(start + replicas.rank * size, min(start + (replicas.rank + 1) * size, count))
            parts = self._parts(self.held_out.windows(own), size)
            loss, tokens = self.spread.evaluate(parts).sum(), int((parts[0][:, 1:] != PAD).sum())
            sums += torch.stack([loss, loss.new_tensor(tokens), loss / max(tokens, 1), loss.new_tensor(tokens > 0)])
        self.spread.network.train()
        loss_sum, tokens, means, batches = (self.workers.total(sums) / self.train.stages).tolist()
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
        if self.memory and self.memory.activations:
            metrics |= self.memory.metrics() | {
                f"{key}{names.ESTIMATED}": float(size) for key, size in self.estimated.items()
            }
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
        step = self.saver.newest()
        if step is None:
            return
        random = self._random()
        about = self.saver.load(step, random)
        self.progress = self._resumed(step, about)
        torch.set_rng_state(random["random.cpu"])
        if self.workers.device.type == "cuda":
            torch.cuda.set_rng_state(random["random.cuda"])

    def _resumed(self, step: int, about: Any) -> Progress:
        try:
            progress = Progress(**about["progress"])
            if progress.step == step:
                return progress
        except (TypeError, KeyError):
            pass
        raise InputError(f"{self.saver.checkpoints.path(step)}: its record was changed by hand; delete that folder")


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf

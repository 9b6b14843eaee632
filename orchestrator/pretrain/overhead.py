"""Two networks take training steps in turn: what one's step takes of time and memory beside the other's.

Steps of a round follow each other at once, so that whatever else slows a machine down slows both; which is first is
drawn anew each round. The clock stops when the device has done its work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from random import Random
from statistics import median, quantiles
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from analysis import names
from models.llama import Llama
from models.topology.cascaded import Spec as Cascaded
from orchestrator.errors import Diverged
from orchestrator.pretrain import trained
from orchestrator.pretrain.measure import Memory, peak_flops
from orchestrator.pretrain.parallel import Workers
from orchestrator.workloads.base import Row

if TYPE_CHECKING:
    from orchestrator.workloads.overhead import Spec, TimingSpec

HERE = 1  # workers


class Side:
    """One of the two networks."""

    def __init__(self, network: Llama, spec: Spec, device: torch.device) -> None:
        self.device, self.network = device, network
        training = spec.train.training
        spread = trained.spread(network, training, spec.train.sequence, Workers(0, HERE, device))
        self.spread, self.optimizer = spread, trained.optimizer(spec.optim, spread, training)
        self.tokens = spec.train.batch * spec.train.sequence  # of a step
        self.seconds: list[float] = []  # of each timed step
        self.loss = math.nan  # of the last step, mean over tokens
        self.memory: dict[str, float] = {}  # by names.MEMORY
        self.peak: float | None = None  # bytes, the most of any step; None: the device does not say

    @property
    def kept(self) -> float:
        """Bytes that stay between steps."""
        return self.memory.get(names.MEMORY_PARAMETERS, 0) + self.memory.get(names.MEMORY_OPTIMIZER, 0)

    def look(self, windows: Tensor) -> None:
        """A step in which memory is counted by category."""
        memory = Memory(self.network, self.optimizer, self.device)
        memory.watch()
        self.loss = self.spread.step([windows], 1 / self.tokens).item() / self.tokens
        memory.backward()
        self.optimizer.step()
        found = memory.metrics()
        self.memory = {name: found[name] for name in names.MEMORY}
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, windows: Tensor, other: float) -> float:
        """Seconds of a step on windows (sequences, predictions + 1), while another network keeps `other` bytes."""
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
            torch.cuda.synchronize(self.device)
        started = time.perf_counter()
        loss = self.spread.step([windows], 1 / self.tokens)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.item() / self.tokens
        if cuda:
            torch.cuda.synchronize(self.device)
        took = time.perf_counter() - started
        if cuda:
            self.peak = max(self.peak or 0.0, torch.cuda.max_memory_allocated(self.device) - other)
        return took


class Measurement:
    """The rounds of one trial."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.device = spec, Workers.here().device
        self.own, self.base = self._side(spec, cascaded=False), self._side(spec, cascaded=True)
        self.random = torch.Generator().manual_seed(spec.seed)
        self.order = Random(spec.seed)

    def _side(self, spec: Spec, *, cascaded: bool) -> Side:
        torch.manual_seed(spec.seed)
        model, topology = (spec.baseline, Cascaded()) if cascaded else (spec.model, spec.topology)
        return Side(model.build(topology, checkpoint=spec.train.activation_checkpointing), spec, self.device)

    def rows(self) -> Iterator[Row]:
        """One every `log_every` rounds, and one after the last.

        Raises:
            Diverged: a loss is no longer finite, so that steps are no longer those of training.
        """
        train = self.spec.train
        for side in (self.own, self.base):
            side.look(self._windows(train))
        for number in range(2 - train.warmup, train.rounds + 1):  # those up to 0, and the look, warm up
            self._round(number)
            if number > 0 and (number % train.log_every == 0 or number == train.rounds):
                yield self._row(number)

    def _round(self, number: int) -> None:
        windows = self._windows(self.spec.train)
        for side in self.order.sample((self.own, self.base), 2):
            other = self.base if side is self.own else self.own
            seconds = side.step(windows, other.kept)
            if not math.isfinite(side.loss):
                raise Diverged(max(number, 1), names.TRAIN_LOSS)
            if number > 0:
                side.seconds.append(seconds)

    def _windows(self, train: TimingSpec) -> Tensor:
        shape = (train.batch, train.sequence + 1)
        return torch.randint(self.spec.model.vocab_size, shape, generator=self.random).to(self.device)

    def _row(self, number: int) -> Row:
        own, base, spec = self.own, self.base, self.spec
        ratios = [a / b for a, b in zip(own.seconds, base.seconds, strict=True)]
        low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        metrics = {
            names.SLOWDOWN: middle,
            names.SLOWDOWN_LOW: low,
            names.SLOWDOWN_HIGH: high,
            names.OVERHEAD_PARAMETERS: float(spec.model.num_coefficients(spec.topology)),
            names.TOKENS_PER_S: own.tokens / median(own.seconds),
            names.CASCADED_TOKENS_PER_S: base.tokens / median(base.seconds),
            names.TRAIN_LOSS: own.loss,
            **own.memory,
            names.CASCADED_ACTIVATIONS: base.memory[names.MEMORY_ACTIVATIONS],
        }
        estimated = spec.memory(spec.model, spec.topology)
        metrics |= {name + names.ESTIMATED: float(held) for name, held in estimated.items()}
        if flops := peak_flops(self.device, None):
            per_token = spec.model.flops_per_token(spec.train.sequence)
            metrics[names.MFU] = metrics[names.TOKENS_PER_S] * per_token / flops
        if own.peak is not None and base.peak is not None:
            metrics |= {names.MEMORY_PEAK: own.peak, names.CASCADED_PEAK: base.peak}
        return Row(number, metrics)

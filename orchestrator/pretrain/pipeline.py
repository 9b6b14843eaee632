"""A decoder cut into pipeline stages, one for each worker: the step, the held-out loss and the gradient's length.

Worker r runs stage r % S of replica r // S, so neighbouring stages are neighbouring workers, and replicas of the whole
pipeline share a batch as workers without stages do. The gradient is that of one process: the caller scales the summed
loss, and micro-batches, stages and replicas add up.

`torch.distributed.pipelining` orders a step: 1F1B, or GPipe where there are fewer micro-batches than stages. It lays
out, once, what every micro-batch of a step receives: so all have one shape, and memory for links grows with their
number. Its own inference of shapes would run every block once more, and is avoided by telling them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.functional import cross_entropy, pad

from models.llama import Llama
from models.pipeline import Stage
from models.stages import cuts
from models.wiring import Wiring
from orchestrator.errors import InputError
from orchestrator.pretrain.parallel import Workers, clip
from orchestrator.pretrain.sequences import PAD


class Mixed(nn.Module):
    """Forward alone under bfloat16 autocast: the schedule runs backward too, which must not be."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, *received: Tensor) -> Tensor | tuple[Tensor, ...]:
        with torch.autocast(received[0].device.type, torch.bfloat16):
            left: Tensor | tuple[Tensor, ...] = self.stage(*received)
            return left


class Pipeline:
    """This worker's stage of `network`, and what training takes from all stages together.

    Every worker makes one from a network of the same weights, calls the same methods in the same order, and gives the
    windows of its replica: all its stages the same.

    Attributes:
        network: this worker's stage, which it trains and saves; parameters have their names in the whole network.
        replicas: its Workers are this worker's pipeline among all.

    Args:
        network: the whole decoder, in its precision; its other stages are given up.
        stages: how many of the workers make one pipeline.
        rows, length: the size of a micro-batch: sequences, and predictions in each.
        mixed: forward under bfloat16 autocast.

    Raises:
        InputError: `stages` does not divide the workers.
        ValueError: more stages than blocks.
    """

    def __init__(
        self, network: Llama, workers: Workers, stages: int, *, rows: int, length: int, mixed: bool = False
    ) -> None:
        if workers.count % stages:
            raise InputError(f"{workers.count} workers are no multiple of the {stages} pipeline stages")
        self.workers, self.stages, self.rows, self.length = workers, stages, rows, length
        self.index = workers.rank % stages
        self.replicas = replace(workers, rank=workers.rank // stages, count=workers.count // stages)
        wiring = getattr(network.stack.topology, "wiring", None)
        edges = wiring.edges if isinstance(wiring, Wiring) else ()
        first, last = cuts(len(network.stack.blocks), stages, edges)[self.index :][:2]
        self.network = Stage(network, first, last).to(workers.device)
        self.coefficients = [*self.network.stack.topology.parameters()]
        shared = {id(p) for p in self.coefficients}
        self.own = [p for p in self.network.parameters() if id(p) not in shared]
        self.dtype = self.own[0].dtype
        self.forward: nn.Module = Mixed(self.network) if mixed else self.network
        mesh = init_device_mesh(workers.device.type, (self.replicas.count, stages), mesh_dim_names=("replica", "stage"))
        self.twins, self.line = mesh.get_all_groups()  # this stage of all replicas, and all stages of this replica
        self.schedule: ScheduleGPipe | Schedule1F1B | None = None
        self.micro_batches = 0  # of the schedule
        self.scale = 1.0
        self.loss = torch.zeros(())

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @property
    def is_last(self) -> bool:
        return self.index == self.stages - 1

    def step(self, parts: Sequence[Tensor], scale: float) -> Tensor:
        """Forward and backward: `.grad`, None before, becomes the gradient of scale * the summed loss of all replicas.

        Args:
            parts: micro-batches of windows (sequences, predictions + 1) int64, PAD = -1 beyond a sequence's end, on
                the device; none larger than (rows, length + 1).

        Returns:
            The summed loss of all replicas, on every worker.
        """
        windows = torch.cat([self._whole(part) for part in parts])
        if self.schedule is None or len(parts) != self.micro_batches:
            self.schedule, self.micro_batches = self._schedule(len(parts)), len(parts)
        self.scale, self.loss = scale, torch.zeros((), device=windows.device)
        inputs = (windows[:, :-1].clamp(min=0),) if self.is_first else ()
        try:
            self.schedule.step(*inputs, target=windows[:, 1:] if self.is_last else None, return_outputs=False)
        except BaseException as error:
            self.schedule = None  # it holds states and losses of the step that failed
            self.network.zero_grad()
            raise _cause(error) from None
        self._share()
        return self.workers.total(self.loss)

    def _whole(self, part: Tensor) -> Tensor:
        """The part in the size of all: (rows, length + 1)."""
        rows, columns = self.rows - part.shape[0], self.length + 1 - part.shape[1]
        if rows < 0 or columns < 0:
            raise ValueError(f"a micro-batch of {tuple(part.shape)} is larger than {(self.rows, self.length + 1)}")
        return pad(part, (0, columns, 0, rows), value=PAD)

    def _schedule(self, micro_batches: int) -> ScheduleGPipe | Schedule1F1B:
        tokens = torch.empty(self.rows, self.length, dtype=torch.int64, device="meta")
        logits = torch.empty(self.rows, self.length, self.network.spec.vocab_size, device="meta")
        stage = PipelineStage(
            self.forward,
            self.index,
            self.stages,
            self.workers.device,
            input_args=(tokens,) if self.is_first else self._passed(self.network.link.entering, self.rows, self.length),
            output_args=(logits,) if self.is_last else self._passed(self.network.link.leaving, self.rows, self.length),
            group=self.line,
        )
        kind = Schedule1F1B if micro_batches >= self.stages else ScheduleGPipe
        return kind(stage, micro_batches, self._scaled_loss, scale_grads=False)  # by default it takes the parts' mean

    def _passed(self, count: int, rows: int, length: int) -> tuple[Tensor, ...]:
        """What `count` tensors between stages look like. Only those that require a gradient get one sent back."""
        shape = self.network.link.shape(rows, length)
        return tuple(torch.empty(shape, dtype=self.dtype, device="meta", requires_grad=True) for _ in range(count))

    def _scaled_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss = _loss(logits, targets)
        self.loss += loss.detach()
        return loss * self.scale

    def _share(self) -> None:
        """Add up what stages, and what replicas, have of a gradient in common."""
        for coefficient in self.coefficients:
            if coefficient.grad is None:
                coefficient.grad = torch.zeros_like(coefficient)
            self.workers.total(coefficient.grad)
        if self.replicas.count > 1:
            for parameter in self.own:
                dist.all_reduce(parameter.grad, group=self.twins)

    @torch.no_grad()
    def evaluate(self, parts: Sequence[Tensor]) -> Tensor:
        """The summed loss of each of this replica's micro-batches: (parts) float64, on all its stages.

        Replicas need not have as many, and sizes may differ: here nothing is laid out before.
        """
        losses = torch.zeros(len(parts), dtype=torch.float64, device=self.workers.device)
        sending: list[dist.Work] = []
        for number, part in enumerate(parts):
            left = self.forward(*self._receive(part))
            _wait(sending)
            if isinstance(left, Tensor):
                losses[number] = _loss(left, part[:, 1:])
            else:
                sending = _send(left, self.line, self.index + 1)
        _wait(sending)
        dist.all_reduce(losses, group=self.line)
        return losses

    def _receive(self, part: Tensor) -> list[Tensor]:
        """What this stage's forward takes of a micro-batch."""
        if self.is_first:
            return [part[:, :-1].clamp(min=0)]
        rows, columns = part.shape
        passed = self._passed(self.network.link.entering, rows, columns - 1)
        states = [torch.empty_like(h, device=self.workers.device) for h in passed]
        for h in states:
            dist.recv(h, group=self.line, group_src=self.index - 1)
        return states

    def gradient_norm(self) -> Tensor:
        """The length of the whole network's gradient, float32: every stage's own, and once the topology's."""
        total = self._square(self.own)
        dist.all_reduce(total, group=self.line)
        return (total + self._square(self.coefficients)).sqrt()

    def clip(self, largest: float, norm: Tensor) -> None:
        """Scale the gradient down to `largest` where its length `norm` is above."""
        clip([p.grad for p in self.network.parameters() if p.grad is not None], largest, norm)

    def _square(self, parameters: Sequence[Tensor]) -> Tensor:
        """The squared length of their gradients, where they are bfloat16 too."""
        norms = [torch.linalg.vector_norm(p.grad, dtype=torch.float32) for p in parameters if p.grad is not None]
        return torch.stack(norms).square().sum() if norms else torch.zeros((), device=self.workers.device)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Summed over (sequences, length) tokens, those of PAD left out."""
    flat = logits.flatten(0, 1).float()
    return cross_entropy(flat, targets.flatten(), ignore_index=PAD, reduction="sum")


def _send(states: Sequence[Tensor], group: dist.ProcessGroup, stage: int) -> list[dist.Work]:
    works = (dist.isend(h, group=group, group_dst=stage) for h in states)
    return [work for work in works if work is not None]


def _wait(works: Sequence[dist.Work]) -> None:
    for work in works:
        work.wait()


def _cause(error: BaseException) -> BaseException:
    """What went wrong in a stage, which the schedule wraps in a RuntimeError of many lines."""
    return error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error

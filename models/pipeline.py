"""A pipeline stage of the LLaMA decoder: some neighbouring blocks, and what enters and leaves them.

Parameters have the names they have in the whole network, so a checkpoint of stages is one of the network, and of any
other number of stages. The first stage also has the embedding, the last the norm and the head, and every stage all
coefficients of the topology: their gradient is the sum over stages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.hyper import Streams, add
from models.llama import Llama, rotation
from models.mixing import Chain, Mix, Terms, Weighted
from models.stack import State, Topology, call
from models.stages import crossing

States = tuple[Tensor, ...]


class Link(ABC):
    """What a topology has stages pass on, and how its steps first + 1 .. last continue from it.

    Attributes:
        entering, leaving: how many tensors of `shape(sequences, length)` the stage takes and gives.
    """

    entering: int
    leaving: int

    @abstractmethod
    def shape(self, sequences: int, length: int) -> tuple[int, ...]:
        """Of every tensor that is passed on."""

    @abstractmethod
    def enter(self, x: Tensor) -> States:
        """What the first stage begins with, for x = h_0 (sequences, length, width)."""

    @abstractmethod
    def run(self, received: States, blocks: Sequence[nn.Module], args: States, *, recompute: bool) -> States:
        """What leaves the stage, from what has entered it; `recompute`: blocks run again in backward."""

    @abstractmethod
    def finish(self, states: States) -> Tensor:
        """h_K, from what leaves the last stage."""


def run_block(block: nn.Module, h: Tensor, args: States, *, recompute: bool) -> Tensor:
    if not recompute:
        return call(block, h, args)
    out: Tensor = checkpoint(call, block, h, args, use_reentrant=False)
    return out


class Sums(Link):
    """Weighted sums of states: every h_i that a later step still reads is passed on as a tensor of its own.

    What the stage's steps take from h_i, i < first, is one matrix product; among its own states and h_first the mix
    runs as in the whole network.
    """

    def __init__(self, topology: Mix, width: int, first: int, last: int) -> None:
        self.topology, self.width, self.first, self.last = topology, width, first, last
        wiring = topology.wiring
        self.received, self.passed = crossing(wiring, first), crossing(wiring, last)
        self.entering, self.leaving = len(self.received), len(self.passed)
        inside = [(i, j) for i, j in (*wiring.start, *wiring.offset) if first <= i and j <= last]
        self.fixed: list[float] | None = None  # weights of h_{j-1}, where nothing else is read and none is trained
        if topology.c is None and all(i == j - 1 for i, j in inside):
            own = float(wiring.inner_residual == "keep")
            pairs = [(j - 1, j) for j in range(first + 1, last + 1)]
            self.fixed = [wiring.start.get(pair, 0.0) + wiring.offset.get(pair, 0.0) + own for pair in pairs]

    def shape(self, sequences: int, length: int) -> tuple[int, ...]:
        return (sequences, length, self.width)

    def enter(self, x: Tensor) -> States:
        return (x,)

    def run(self, received: States, blocks: Sequence[nn.Module], args: States, *, recompute: bool) -> States:
        w = self.topology.total("branch")
        states = dict(zip(self.received, received, strict=True))
        state, sums = self._start(received[-1], w), self._earlier(received[:-1], w)
        for number, block in enumerate(blocks):
            out = run_block(block, state.read(), args, recompute=recompute)
            state.write(out if sums is None else out + sums[number])
            states[self.first + number + 1] = state.read()
        return tuple(states[i].to(received[-1].dtype) for i in self.passed)  # all that is passed on has one dtype

    def _start(self, x: Tensor, w: Tensor) -> State:
        if self.fixed is not None:
            return Chain(x, self.fixed)
        inside = w[self.first : self.last + 1, self.first : self.last + 1]
        return (Terms if torch.compiler.is_compiling() else Weighted)(x, inside)

    def _earlier(self, earlier: States, w: Tensor) -> Tensor | None:
        """sum_{i < first} w_ij h_i for each of the stage's steps: (steps, the shape of a state)."""
        if not earlier:
            return None
        weights = w[self.received[:-1], self.first + 1 : self.last + 1]  # (states, steps)
        h = torch.stack(earlier)
        wide = torch.promote_types(h.dtype, weights.dtype)
        with torch.autocast(h.device.type, enabled=False):
            sums = (weights.T.to(wide) @ h.flatten(1).to(wide)).to(h.dtype)
        return sums.view(-1, *h.shape[1:])

    def finish(self, states: States) -> Tensor:
        return states[-1]


class AllStreams(Link):
    """Hyper-connections: all streams are passed on in one tensor."""

    entering = leaving = 1

    def __init__(self, topology: Streams, width: int, first: int, last: int) -> None:
        self.topology, self.width, self.first, self.last = topology, width, first, last

    def shape(self, sequences: int, length: int) -> tuple[int, ...]:
        return (sequences, length, self.topology.streams, self.width)

    def enter(self, x: Tensor) -> States:
        return (self.topology.copies(x),)

    def run(self, received: States, blocks: Sequence[nn.Module], args: States, *, recompute: bool) -> States:
        (streams,), topology = received, self.topology
        for block, weights in zip(blocks, islice(topology.steps(), self.first, self.last), strict=True):
            u, kept, b = topology.connect(streams, weights)
            out = topology.output(run_block(block, u, args, recompute=recompute), u, "branch")
            streams = add(kept, b, out, streams.dtype)
        return (streams,)

    def finish(self, states: States) -> Tensor:
        return states[0].mean(-2)


def link(topology: Topology, width: int, first: int, last: int) -> Link:
    """How blocks first + 1 .. last are linked to those before and after; `models/stages.py` says for which kinds."""
    if isinstance(topology, Mix):
        return Sums(topology, width, first, last)
    assert isinstance(topology, Streams)
    return AllStreams(topology, width, first, last)


class StackPart(nn.Module):
    """The stage's share of a `Stack`: some blocks under their numbers in the whole, and the whole topology."""

    def __init__(self, blocks: dict[str, nn.Module], topology: Topology) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict(blocks)
        self.topology = topology


class Stage(nn.Module):
    """Blocks first + 1 .. last of a decoder.

    Takes token numbers (sequences, length) where it is the first stage, else `link.entering` tensors, and gives logits
    (sequences, length, vocabulary) where it is the last, else `link.leaving` tensors.

    Args:
        network: the whole decoder, of which the stage keeps its parts: it is built at once and then mostly dropped, in
            the memory of the host, so that the stages' weights are those that one process draws from the same seed.
    """

    def __init__(self, network: Llama, first: int, last: int) -> None:
        super().__init__()
        stack, depth = network.stack, len(network.stack.blocks)
        self.spec, self.checkpoint = network.spec, stack.checkpoint
        self.embedding = network.embedding if first == 0 else None
        self.stack = StackPart({str(number): stack.blocks[number] for number in range(first, last)}, stack.topology)
        self.norm = network.norm if last == depth else None
        self.head = network.head if last == depth else None
        self.link = link(stack.topology, network.spec.width, first, last)

    def forward(self, *received: Tensor) -> Tensor | States:
        spec, length = self.spec, received[0].shape[1]
        rotary = rotation(length, spec.width // spec.heads, spec.rope_base, received[0].device)
        entered = received if self.embedding is None else self.link.enter(self.embedding(*received))
        left = self.link.run(entered, [*self.stack.blocks.values()], rotary, recompute=self.checkpoint)
        if self.norm is None or self.head is None:
            return left
        logits: Tensor = self.head(self.norm(self.link.finish(left)))
        return logits

    def topologies(self) -> dict[str, Topology]:
        """As of the whole network."""
        return {"decoder": self.stack.topology}

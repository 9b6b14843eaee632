"""How blocks are run through a topology: any modules of one shape, and what a topology must be to connect them.

A topology keeps nothing between forwards. `start` makes a `State` for one forward; each step reads the next block's
input from it and writes that block's output into it. So weighted sums, parallel streams and attention over depth fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.topology.base import Snapshot, TopologySpec

Returns = Literal["block", "branch"]  # what a module returns: x + r(x), or r(x) alone


def call(block: nn.Module, h: Tensor, args: tuple[Any, ...]) -> Tensor:
    """What the block returns, held to the shape of its input."""
    out: Tensor = block(h, *args)
    if out.shape != h.shape:
        raise ValueError(f"a block returned shape {tuple(out.shape)} for {tuple(h.shape)}; blocks keep the shape")
    return out


class State(ABC):
    """One forward through a topology. Steps come in order: read, block, write, K times; then finish."""

    @abstractmethod
    def read(self) -> Tensor:
        """What the next block reads: the shape of x."""

    @abstractmethod
    def write(self, out: Tensor) -> None:
        """Take what that block returned: the shape of x."""

    @abstractmethod
    def finish(self) -> Tensor:
        """What leaves the stack: the shape of x."""


class Topology(nn.Module, ABC):
    """The residual connections of `depth` blocks."""

    depth: int

    @abstractmethod
    def start(self, x: Tensor, returns: Returns) -> State:
        """Begin a forward from h_0 = x, for modules that return blocks or branches."""

    def cut(self, segment: int) -> None:
        """From now on `recompute` runs segments of so many blocks again, in place of those that it has of itself.

        Raises:
            ValueError: in one line, where states inside a segment are needed outside.
        """
        if segment != 1:
            raise ValueError(f"blocks of this topology are run again one by one, not in segments of {segment}")

    def recompute(self, x: Tensor, returns: Returns, blocks: nn.ModuleList, args: tuple[Any, ...]) -> Tensor:
        """A forward that keeps the states between blocks alone: backward runs each block again."""
        state = self.start(x, returns)
        for block in blocks:
            state.write(checkpoint(call, block, state.read(), args, use_reentrant=False))
        return state.finish()

    @abstractmethod
    def coefficients(self) -> Tensor | None:
        """p, (K+1, K+1) float32: the weight of h_i in step j, zero where there is no connection.

        Of topologies that are no sums of states: the weight of block i's output, its part that no input changes; None
        where all of it depends on the input.
        """

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """This network's entry in topology.json, see models/snapshot.py."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Move with the network but keep the dtype: coefficients stay float32 where weights become bfloat16."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        return self


class Stack(nn.Module):
    """Blocks j = 1..K, each called as `block(x, *args)` on a tensor (*, width) and keeping its shape.

    Args:
        blocks: the modules; with `returns="block"` each adds its own input, x + r(x), with "branch" it returns r(x).
        topology: a spec, built here for this many blocks, or a module built before.
        width: features of the last dimension, for topologies whose parameters have that size.
        checkpoint: keep only the states between blocks, or between the segments of a sparse topology with boundaries,
            and run the blocks again in backward.
        segment: keep only the states between segments of so many blocks, where the topology allows it.

    Raises:
        ValueError: the topology cannot connect this many blocks, or cannot be cut into such segments.
    """

    def __init__(
        self,
        blocks: Iterable[nn.Module],
        topology: TopologySpec | Topology,
        *,
        width: int = 0,
        returns: Returns = "block",
        checkpoint: bool = False,
        segment: int | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        depth = len(self.blocks)
        if isinstance(topology, TopologySpec):
            topology.check(depth)
            topology = topology.build(depth, width)
        if topology.depth != depth:
            raise ValueError(f"the topology connects {topology.depth} blocks, the stack has {depth}")
        if segment is not None:
            topology.cut(segment)
        self.topology = topology
        self.returns = returns
        self.checkpoint = checkpoint

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """h_K, the shape of x. `args` go to every block."""
        if self.checkpoint:
            return self.topology.recompute(x, self.returns, self.blocks, args)
        state = self.topology.start(x, self.returns)
        for block in self.blocks:
            state.write(call(block, state.read(), args))
        return state.finish()

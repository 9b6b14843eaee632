"""Two residual topologies in one Transformer: over what attention reads, and over what feed-forward networks read.

A block j = 1..K of a decoder has two modules, attention A_j and the feed-forward network M_j, and so K blocks have two
series of states (paper, section 4.2). With h_{j-1} the input of A_j and m_j that of M_j, modules give

    m~_j = h_{j-1} + A_j(h_{j-1}),   h~_j = m_j + M_j(m_j),

and each series has a topology of K steps of its own, whose F_j is what came up since the state before it:

    outer:  h_0 = x,     h_j = F_j + sum_{i<j} p_ij h_i,   F_j = h~_j - h_{j-1} (drop) or h~_j (keep)
    inner:  g_0 = m~_1,  g_j = G_j + sum_{i<j} q_ij g_i,   G_j = m~_{j+1} - g_{j-1} (drop) or m~_{j+1} (keep)

g_j is m_{j+1}. Both series end in what leaves the stack: the inner one takes h_K for m~_{K+1}, and gives g_K.
Where p and q are cascaded this is the plain decoder; where q alone is, it is `models.stack.Stack`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from models.topology.base import TopologySpec

Part = Literal["attention", "feed_forward"]


def grown(block: nn.Module, x: Tensor, args: tuple[Any, ...], part: Part) -> Tensor:
    """x and what one module of the block adds to it."""
    out: Tensor = x + block(x, *args, part=part)
    return out


class ModuleStack(nn.Module):
    """Blocks, each called as `block(x, *args, part=..)` once for either module, which returns what it adds to x.

    Args:
        outer: connects the inputs of attention, h_0 .. h_K.
        inner: connects the inputs of the feed-forward networks, m_1 .. m_K.
        width: features of the last dimension.
        checkpoint: keep only what modules read, and run each again in backward.

    Raises:
        ValueError: a topology cannot connect this many blocks.
    """

    def __init__(
        self,
        blocks: Iterable[nn.Module],
        outer: TopologySpec,
        inner: TopologySpec,
        *,
        width: int,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.topology = outer.build(len(self.blocks), width)
        self.ffn_topology = inner.build(len(self.blocks), width)
        self.checkpoint = checkpoint

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """What leaves the last step, the shape of x. `args` go to every module."""
        outer, inner = self.topology.start(x, "block"), None
        for block in self.blocks:
            m = self._grown(block, outer.read(), args, "attention")
            if inner is None:
                inner = self.ffn_topology.start(m, "block")
            else:
                inner.write(m)
            outer.write(self._grown(block, inner.read(), args, "feed_forward"))
        assert inner is not None  # a topology connects one block at least
        inner.write(outer.finish())
        return inner.finish()

    def _grown(self, block: nn.Module, x: Tensor, args: tuple[Any, ...], part: Part) -> Tensor:
        if self.checkpoint:
            out: Tensor = checkpoint(grown, block, x, args, part, use_reentrant=False)
            return out
        return grown(block, x, args, part)

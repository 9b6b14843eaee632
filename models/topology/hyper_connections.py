"""Hyper-connections: n streams, which every block reads, mixes and writes by learned weights (arXiv 2409.19606)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.topology.base import TopologySpec, need_width

if TYPE_CHECKING:
    from models.hyper import HyperConnections


def stream_bytes(streams: int, width: int, state: int, *, checkpoint: bool) -> int:
    """As `TopologySpec.kept_bytes`, of the streams: n states for one, or in float32 what they are mixed from and into.

    Beside H (n, d) that is what a block adds and the weights; the mixed streams too, where a state is float32 itself.
    """
    if checkpoint:
        return (streams - 1) * width * state
    mixed = streams * width if state == 4 else 0
    return 4 * ((streams + 1) * width + mixed + 4 * streams * (streams + 2))


class Spec(TopologySpec):
    """Once for each block, which is the count of the paper's Table 6. At the start it is the residual network."""

    kind: Literal["hyper-connections"] = "hyper-connections"
    streams: int = Field(default=4, ge=2, le=16)

    def num_coefficients(self, depth: int, width: int) -> int:
        """Static weights n (n + 2), a projection d (n + 2), its norm's gain d, and 2 scales, for each block."""
        return depth * ((self.streams + width) * (self.streams + 2) + width + 2)

    def kept_bytes(self, width: int, state: int, *, checkpoint: bool) -> int:
        return stream_bytes(self.streams, width, state, checkpoint=checkpoint)

    def build(self, depth: int, width: int) -> HyperConnections:
        from models.hyper import HyperConnections

        self.check(depth)
        need_width(self.kind, width)
        return HyperConnections(self.kind, depth, width, self.streams)

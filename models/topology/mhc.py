"""Manifold-constrained hyper-connections: streams are mixed by doubly stochastic matrices (arXiv 2512.24880)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.topology.base import TopologySpec, need_width
from models.topology.hyper_connections import stream_bytes

if TYPE_CHECKING:
    from models.hyper import Constrained


class Spec(TopologySpec):
    """`weights_from`: a stream's weights are read from that stream by a projection that all share, which is the count
    of Table 6; or from all streams of a token, n^2 times as many numbers, as in 2512.24880.

    `iterations` of Sinkhorn and Knopp: 20 bring rows and columns within 1e-3 of 1 unless logits lie far apart.
    """

    kind: Literal["mhc"] = "mhc"
    streams: int = Field(default=4, ge=2, le=16)
    iterations: int = Field(default=20, ge=1, le=1000)
    weights_from: Literal["stream", "all-streams"] = "stream"

    def num_coefficients(self, depth: int, width: int) -> int:
        """Static weights n (n + 2), a projection, its norm's gain, and 3 scales, for each block."""
        many = self.streams if self.weights_from == "all-streams" else 1
        columns = self.streams + 2
        return depth * (self.streams * columns + many * width * (many * columns + 1) + 3)

    def kept_bytes(self, width: int, state: int, *, checkpoint: bool) -> int:
        """Also what Sinkhorn's iterations divided by: n numbers for each half of one."""
        sums = 0 if checkpoint else 4 * (2 * self.iterations + 3 * self.streams) * self.streams
        return stream_bytes(self.streams, width, state, checkpoint=checkpoint) + sums

    def build(self, depth: int, width: int) -> Constrained:
        from models.hyper import Constrained

        self.check(depth)
        need_width(self.kind, width)
        flat = self.weights_from == "all-streams"
        return Constrained(self.kind, depth, width, self.streams, self.iterations, flat=flat)

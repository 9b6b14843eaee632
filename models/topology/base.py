"""What a residual topology is: a spec that knows its coefficients, and the module that connects K blocks.

Notation (paper, section 4.1): h_0 enters the first block, h_j leaves step j, F_j is block j's own map, and

    h_j = F_j(h_{j-1}) + sum_{i<j} p_ij h_i,   j = 1..K.

Every topology file in this folder defines one `Spec`; the file's name, with - for _, is its kind. Specs import no
torch: `build` does.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from models.spec import Spec

if TYPE_CHECKING:
    from models.stack import Topology

MAX_DEPTH = 4096  # a dense topology then has 8.4 million connections, and each forward as many weighted states
InnerResidual = Literal["keep", "drop"]
Snapshot = dict[str, Any]  # one network's entry in topology.json, see models/snapshot.py


class TopologySpec(Spec):
    """Where the residual connections of a network of `depth` blocks go, and how they are weighted."""

    kind: str

    def check(self, depth: int) -> None:
        """Raise ValueError, in one line, where this topology cannot connect `depth` blocks."""
        if not 1 <= depth <= MAX_DEPTH:
            raise ValueError(f"depth {depth}: a stack has 1 to {MAX_DEPTH} blocks")

    def check_ready(self) -> None:
        """Raise ValueError, in one line, where a file that this topology names is not there."""

    def check_segments(self, depth: int, length: int) -> None:
        """Raise ValueError, in one line, where blocks cannot be run again in segments of so many."""
        if length != 1:
            raise ValueError(f"blocks are run again one by one, not in segments of {length}")

    @abstractmethod
    def num_coefficients(self, depth: int, width: int) -> int:
        """How many numbers this topology adds to the trained parameters of a network of this width."""

    def kept_bytes(self, width: int, state: int, *, checkpoint: bool) -> int:
        """Bytes that a step keeps per token for backward, besides what its block keeps; none where it keeps states.

        Args:
            width: features of a state.
            state: bytes of one of its numbers.
            checkpoint: blocks run again in backward.
        """
        return 0

    @abstractmethod
    def build(self, depth: int, width: int) -> Topology:
        """The module that connects `depth` blocks whose states have `width` features in the last dimension."""


def need_width(kind: str, width: int) -> None:
    """Raise ValueError, in one line, where a topology whose parameters have the size of a state is not told it."""
    if width < 1:
        raise ValueError(f"topology {kind!r} has weights for each feature: give the width of the states, not {width}")

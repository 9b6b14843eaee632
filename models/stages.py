"""Where a decoder is cut into pipeline stages, and which states cross a cut. No torch.

Stage s of S runs blocks c_s + 1 .. c_{s+1}, where 0 = c_0 < c_1 < .. < c_S = K.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from models.llama_spec import LlamaSpec
from models.topology.base import TopologySpec
from models.topology.hyper_connections import Spec as HyperConnections
from models.topology.mhc import Spec as Constrained
from models.wiring import WiredSpec, Wiring


def check_stages(model: LlamaSpec, topology: TopologySpec, stages: int) -> None:
    """Raise ValueError, in one line, where the network cannot be cut into so many stages."""
    if stages > model.depth:
        raise ValueError(f"{stages} pipeline stages need as many blocks, the network has {model.depth}")
    if stages == 1:
        return
    if model.granularity != "block":
        raise ValueError(f"granularity {model.granularity!r} cannot be cut into pipeline stages, only 'block' can")
    if model.value_residual:
        raise ValueError("value_residual: all blocks read the first one's values, which pipeline stages do not pass on")
    if not isinstance(topology, WiredSpec | HyperConnections | Constrained):
        raise ValueError(
            f"topology {topology.kind!r} cannot be cut into pipeline stages; those that can are weighted sums of states"
            " (ancre, ancre-sparse, cascaded and others), hyper-connections and mhc"
        )


def cuts(depth: int, stages: int, edges: Sequence[int] = ()) -> list[int]:
    """c_0 .. c_S: stages differ by one block at most, and the last, which has the head, is none of the longer.

    With `edges` 0 .. K of a sparse topology, cuts move to the nearest ones where the longest stage grows no longer by
    it: segments stay whole, and one state less is passed on.

    Raises:
        ValueError: more stages than blocks.
    """
    if not 1 <= stages <= depth:
        raise ValueError(f"{stages} pipeline stages need as many blocks, the network has {depth}")
    longest = -(-depth // stages)
    even = [-(-stage * depth // stages) for stage in range(stages + 1)]
    aligned = [min(edges, key=lambda edge: abs(edge - cut)) for cut in even] if edges else []
    balanced = aligned and all(0 < stop - start <= longest for start, stop in pairwise(aligned))
    return aligned if balanced else even


def crossing(wiring: Wiring, cut: int) -> list[int]:
    """The i of all h_i, i <= cut, that a later step reads: h_cut, the next block's input, is the last of them."""
    return sorted({i for i, j in wiring.pairs if i <= cut < j} | {cut})

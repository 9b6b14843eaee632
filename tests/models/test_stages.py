"""Where a decoder is cut, and what crosses a cut: against the matrix of weights, and the bounds of the masks."""

from itertools import pairwise

import pytest

from models.llama_spec import LlamaSpec
from models.stages import check_stages, crossing, cuts
from models.topology.ancre import Spec as Ancre
from models.topology.ancre_sparse import Spec as Sparse
from models.topology.ancre_uniform import Spec as Uniform
from models.topology.cascaded import Spec as Cascaded
from models.topology.denseformer import Spec as DenseFormer
from models.topology.fixed_first_prev import Spec as FirstPrev
from models.topology.hyper_connections import Spec as HyperConnections
from models.topology.learnable_cascaded import Spec as LearnableCascaded
from models.topology.mhc import Spec as Constrained
from models.topology.shortcuts import Spec as Shortcuts

DEPTHS = range(1, 15)


def model(**fields) -> LlamaSpec:
    return LlamaSpec(**({"width": 8, "ffn_width": 8, "depth": 3, "heads": 2} | fields))


def test_stages_are_even_and_the_last_is_none_of_the_longer():
    for depth in DEPTHS:
        for stages in range(1, depth + 1):
            bounds = cuts(depth, stages)
            lengths = [stop - start for start, stop in pairwise(bounds)]
            assert (bounds[0], bounds[-1], len(lengths)) == (0, depth, stages)
            assert lengths[-1] == min(lengths) >= max(lengths) - 1


@pytest.mark.parametrize(
    ("depth", "stages", "segment", "expected"),
    [(12, 3, 4, [0, 4, 8, 12]), (10, 3, 4, [0, 4, 8, 10]), (9, 2, 4, [0, 4, 9]), (12, 4, 4, [0, 3, 6, 9, 12])],
)
def test_cuts_keep_to_edges_unless_the_longest_stage_grows(depth, stages, segment, expected):
    """Without edges, 10 blocks are cut at 4 and 7, and 9 blocks at 5."""
    assert cuts(depth, stages, Sparse(segment=segment).edges(depth)) == expected


def test_no_alignment_lengthens_the_longest_stage():
    for depth in DEPTHS:
        for stages in range(1, depth + 1):
            for segment in range(1, depth + 1):
                bounds = cuts(depth, stages, Sparse(segment=segment).edges(depth))
                assert (bounds[0], bounds[-1], len(bounds)) == (0, depth, stages + 1)
                assert all(0 < stop - start <= -(-depth // stages) for start, stop in pairwise(bounds))


@pytest.mark.parametrize(
    "topology",
    [
        Ancre(inner_residual="keep"),
        Ancre(normalization="outgoing"),
        Sparse(segment=3),
        Sparse(mask="boundary-targets", segment=3),
        Sparse(mask="boundary-targets", inner_residual="keep"),
        Sparse(mask="first-and-window", window=2),
        Cascaded(),
        FirstPrev(),
        LearnableCascaded(),
        Uniform(),
        Shortcuts(shortcuts="0:2+2:6+0:7"),
    ],
    ids=lambda spec: f"{spec.kind} {getattr(spec, 'mask', '')}",
)
def test_what_crosses_is_what_the_matrix_of_weights_still_reads(topology):
    for depth in (7, 9):
        weights = topology.build(depth, 1).total("branch")
        for cut in range(depth):
            read = weights[: cut + 1, cut + 1 :].count_nonzero(dim=1) > 0
            read[cut] = True  # the next block's own input
            assert crossing(topology.wiring(depth), cut) == read.nonzero().flatten().tolist()


def test_a_link_of_boundary_sources_carries_the_boundaries_and_one_state_more():
    for depth in DEPTHS:
        for segment in range(1, depth + 1):
            topology = Sparse(segment=segment)
            edges, wiring = topology.edges(depth), topology.wiring(depth)
            for cut in range(depth):
                s = max(number for number, edge in enumerate(edges) if edge <= cut)  # segments that are complete
                count = len(crossing(wiring, cut))
                assert count == s + 1 + (cut not in edges) <= s + 2


def test_a_link_carries_one_state_of_the_cascaded_network_and_all_of_a_dense_one():
    for depth in DEPTHS:
        for cut in range(depth):
            assert crossing(Cascaded().wiring(depth), cut) == [cut]
            assert crossing(Ancre().wiring(depth), cut) == [*range(cut + 1)]


def test_what_cannot_be_cut_is_said_in_one_line():
    check_stages(model(), DenseFormer(), 1)
    for topology in (Cascaded(), HyperConnections(), Constrained()):
        check_stages(model(), topology, 3)
    with pytest.raises(ValueError, match=r"^4 pipeline stages need as many blocks, the network has 3$"):
        check_stages(model(), Cascaded(), 4)
    with pytest.raises(ValueError, match=r"^4 pipeline stages need as many blocks, the network has 3$"):
        cuts(3, 4)
    with pytest.raises(ValueError, match=r"^value_residual: all blocks read the first one's values"):
        check_stages(model(value_residual=True), Cascaded(), 2)
    with pytest.raises(ValueError, match=r"^granularity 'ffn' cannot be cut"):
        check_stages(model(granularity="ffn"), Cascaded(), 2)
    with pytest.raises(ValueError, match=r"^topology 'denseformer' cannot be cut into pipeline stages"):
        check_stages(model(), DenseFormer(), 2)

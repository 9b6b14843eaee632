"""Which parameter is which, in built networks and before they are built."""

from collections import Counter

import pytest
from torch import nn

from models.linear import LinearNetwork
from models.linear_spec import LinearSpec
from models.llama_spec import LlamaSpec
from models.optim.parts import numbers, parts, shapes
from models.topology.ancre import Spec as Ancre
from models.topology.cascaded import Spec as Cascaded
from models.topology.hyper_connections import Spec as HyperConnections

TINY = LlamaSpec(width=8, ffn_width=12, depth=2, heads=2, vocab_size=20)


@pytest.mark.parametrize("topology", [Cascaded(), Ancre(), HyperConnections()])
@pytest.mark.parametrize("granularity", ["block", "both"])
def test_a_decoder_has_the_shapes_that_its_spec_says(topology, granularity):
    spec = TINY.model_copy(update={"granularity": granularity})
    planned, built = spec.shapes(topology), shapes(spec.build(topology))
    assert numbers(planned) == spec.num_params() + spec.num_coefficients(topology)
    counted = Counter({(s.size, s.part): s.count for s in planned if s.part != "topology"})
    assert counted == Counter((s.size, s.part) for s in built if s.part != "topology")
    assert numbers(s for s in planned if s.part == "topology") == numbers(s for s in built if s.part == "topology")


def test_a_linear_network_has_the_shapes_that_its_spec_says():
    spec = LinearSpec(depth=3, width=5)
    built = shapes(LinearNetwork(spec, Ancre(), seed=0))
    assert [(s.size, s.part) for s in built] == [((5, 5), "matrix")] * 3 + [((6,), "topology")]
    assert numbers(built) == numbers(spec.shapes(Ancre()))


def test_parts_of_a_decoder():
    network = TINY.build(HyperConnections())
    names = {id(p): name for name, p in network.named_parameters()}
    found = {part: {names[id(p)] for p in members} for part, members in parts(network).items()}
    linear = ("attention.query", "attention.key", "attention.value", "attention.out")
    linear += ("feed_forward.gate", "feed_forward.up", "feed_forward.down")
    assert found["matrix"] == {f"stack.blocks.{j}.{name}.weight" for j in range(2) for name in linear}
    assert found["table"] == {"embedding.weight", "head.weight"}
    assert found["vector"] == {name for name in names.values() if "norm" in name}
    assert found["topology"] == {name for name in names.values() if "topology" in name}
    assert any(p.ndim >= 2 for p in parts(network)["topology"])  # of two dimensions, and yet no matrix of a block


def test_a_parameter_that_is_shared_counts_once_and_an_embedding_is_no_matrix():
    table = nn.Embedding(4, 3)
    head = nn.Linear(3, 4, bias=False)
    head.weight = table.weight
    assert {part: len(members) for part, members in parts(nn.ModuleList([table, head])).items() if members} == {
        "table": 1
    }

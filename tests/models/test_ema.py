"""Moving averages against their closed form, for all parameters, and back in the network."""

import pytest
import torch

from models.dit_spec import DitSpec
from models.ema import Ema
from models.topology.ancre import Spec as Ancre

SPEC = DitSpec(width=8, depth=2, heads=2, patch=2, image_size=4, channels=1, num_classes=3)


def test_averages_follow_their_closed_form_the_topology_among_them():
    network = SPEC.build(Ancre())
    start = {name: p.detach().clone() for name, p in network.named_parameters()}
    ema, decay, steps = Ema(network, 0.9), 0.9, 5
    for k in range(1, steps + 1):
        for name, p in network.named_parameters():
            p.data.copy_(start[name] + k)
        ema.update(network)
    rise = sum((1 - decay) * decay ** (steps - k) * k for k in range(1, steps + 1))
    assert ema.state_dict().keys() == start.keys() >= {"stack.topology.c"}
    for name, average in ema.state_dict().items():
        torch.testing.assert_close(average, start[name] + rise, rtol=1e-5, atol=1e-5)


def test_the_network_has_its_own_parameters_after_its_averages_also_where_drawing_fails():
    network = SPEC.build(Ancre())
    ema = Ema(network, 0.5)
    own = {name: p.detach().clone().add_(1) for name, p in network.named_parameters()}
    for name, p in network.named_parameters():
        p.data.copy_(own[name])

    def holds(values) -> bool:
        return all(torch.equal(p, values[name]) for name, p in network.named_parameters())

    with pytest.raises(RuntimeError, match="inside"), ema.applied(network):
        assert holds(ema.state_dict())
        raise RuntimeError("inside")
    assert holds(own)
    ema.copy_to(network)
    assert holds(ema.state_dict())


def test_bfloat16_parameters_have_averages_that_small_steps_move():
    network = SPEC.build(Ancre()).bfloat16()
    network.head.weight.data.fill_(1)
    ema = Ema(network, 0.9999)
    network.head.weight.data.fill_(2)
    ema.update(network)
    torch.testing.assert_close(ema.state_dict()["head.weight"], torch.full((8, 8), 1.0001))


def test_averages_are_kept_and_loaded():
    network = SPEC.build(Ancre())
    ema, other = Ema(network, 0.5), Ema(SPEC.build(Ancre()), 0.5)
    other.load_state_dict(ema.state_dict())
    assert all(torch.equal(other.state_dict()[name], average) for name, average in ema.state_dict().items())
    with pytest.raises(
        ValueError, match=r"^the moving averages are of another network: it differs in stack.topology.c$"
    ):
        other.load_state_dict({name: a for name, a in ema.state_dict().items() if name != "stack.topology.c"})


@pytest.mark.parametrize("decay", [1.0, -0.1])
def test_a_decay_out_of_range_is_refused(decay):
    with pytest.raises(ValueError, match=rf"^decay {decay} of the moving average is not in \[0, 1\)$"):
        Ema(SPEC.build(Ancre()), decay)

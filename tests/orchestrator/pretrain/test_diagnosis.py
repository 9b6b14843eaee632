"""The diagnosis of a step on networks that are broken in a known place."""

import math

import torch
from torch import nn

from orchestrator.pretrain.diagnosis import first_bad


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 1))


def diagnosed(broken: nn.Module) -> str | None:
    """After one step's forward and backward."""
    x = torch.ones(2, 3)
    broken(x).sum().backward()
    return first_bad(broken, lambda: broken(x))


def test_a_healthy_step_has_no_bad_place_and_keeps_no_hook():
    healthy = network()
    assert diagnosed(healthy) is None
    assert not any(layer._forward_hooks for layer in healthy)


def test_a_weight_comes_first():
    broken = network()
    broken[2].weight.data[1, 1] = math.nan
    assert diagnosed(broken) == "the weight 2.weight"


def test_then_the_first_output_that_overflows():
    broken = network()
    broken[0].weight.data.fill_(9)  # saturates the tanh: three ones
    broken[2].weight.data.fill_(3e38)
    assert diagnosed(broken) == "the output of 2"


def test_then_the_last_gradient():
    broken = network()
    broken[2].weight.register_hook(lambda gradient: gradient * math.inf)
    assert diagnosed(broken) == "the gradient of 2.weight"

"""AdamW: its step against the update rule written out, and what it does not decay."""

import pytest
import torch
from pydantic import ValidationError

from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec
from models.topology.ancre import Spec as Ancre

TINY = LlamaSpec(width=8, ffn_width=12, depth=2, heads=2, vocab_size=20)


def test_three_steps_follow_the_rule():
    network = torch.nn.Linear(3, 2, bias=False)
    weight = network.weight.detach().clone()
    optimizer = Spec(lr=0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.5).build(network)
    m, v = torch.zeros_like(weight), torch.zeros_like(weight)
    for t in range(1, 4):
        gradient = torch.randn(2, 3, generator=torch.Generator().manual_seed(t))
        network.weight.grad = gradient.clone()
        optimizer.step()
        m = 0.8 * m + 0.2 * gradient
        v = 0.9 * v + 0.1 * gradient**2
        update = m / (1 - 0.8**t) / ((v / (1 - 0.9**t)).sqrt() + 1e-3)
        weight = weight - 0.1 * 0.5 * weight - 0.1 * update
    torch.testing.assert_close(network.weight.detach(), weight)


def test_norms_and_topology_have_the_same_rate_and_no_decay():
    network = TINY.build(Ancre())
    optimizer = Spec(lr=0.1, weight_decay=0.5).build(network)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in network.named_parameters():
        kept = name.endswith("norm.weight") or name == "stack.topology.c"
        torch.testing.assert_close(p.detach(), before[name] * (1 if kept else 1 - 0.1 * 0.5), msg=name)
    assert {group["lr"] for group in optimizer.param_groups} == {0.1}


@pytest.mark.parametrize(
    "values",
    [
        {"lr": 0},
        {"lr": -1},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9, -0.1)},
        {"betas": (0.9,)},
        {"eps": 0},
        {"weight_decay": -1},
    ],
)
def test_values_outside_their_range_are_refused(values):
    with pytest.raises(ValidationError):
        Spec(**({"lr": 0.1} | values))

"""Steps inside the backward pass: how much gradient there is at once, its norm, and what is not finite."""

import math

import pytest
import torch
from torch import nn

from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.optim.layerwise import LayerwiseSteps
from models.optim.rounding import StochasticRounding
from models.topology.ancre import Spec as Ancre

SIZE = LlamaSpec(width=16, ffn_width=24, depth=4, heads=2, vocab_size=40)
TOKENS = torch.arange(20).view(2, 10)


def network(**options):
    torch.manual_seed(0)
    return SIZE.build(Ancre(temperature=1.0), **options)


def backward(net):
    net(TOKENS).float().logsumexp(-1).mean().backward()


class Watched:
    """The most bytes of gradients that exist at once, looked at whenever one more is complete."""

    def __init__(self, net):
        self.net, self.peak = net, 0
        for p in net.parameters():
            p.register_post_accumulate_grad_hook(self.look)

    def look(self, _):
        grads = [p.grad for p in self.net.parameters() if p.grad is not None]
        self.peak = max(self.peak, sum(grad.nbytes for grad in grads))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_gradients_exist_one_at_a_time(checkpoint):
    ordinary, layerwise = network(checkpoint=checkpoint), network(checkpoint=checkpoint)
    all_at_once, one_by_one = Watched(ordinary), Watched(layerwise)  # its hooks run before those that step
    LayerwiseSteps(AdamW(lr=0.1).build(layerwise), layerwise.parameters())
    backward(ordinary)
    backward(layerwise)
    sizes = [p.nbytes for p in ordinary.parameters()]
    assert (all_at_once.peak, one_by_one.peak) == (sum(sizes), max(sizes))
    assert all(p.grad is None for p in layerwise.parameters())


@pytest.mark.parametrize("in_backward", [True, False])
def test_the_norm_is_that_of_all_gradients(in_backward):
    ordinary, layerwise = network(), network()
    steps = LayerwiseSteps(AdamW(lr=0.1).build(layerwise), layerwise.parameters() if in_backward else ())
    backward(ordinary)
    expected = nn.utils.get_total_norm(p.grad for p in ordinary.parameters())
    backward(layerwise)
    steps.step()
    torch.testing.assert_close(steps.gradient_norm(), expected)
    with pytest.raises(ValueError, match="no gradient since"):
        steps.gradient_norm()


def test_norm_of_narrow_gradients_is_float32():
    net = network().bfloat16()
    steps = LayerwiseSteps(AdamW(lr=0.1).build(net))
    backward(net)
    squares = sum(p.grad.double().square().sum() for p in net.parameters())
    steps.step()
    torch.testing.assert_close(steps.gradient_norm(), squares.sqrt().float())


def test_rates_are_those_of_the_groups_when_backward_runs():
    net = network()
    optimizer = AdamW(lr=0.1).build(net)
    LayerwiseSteps(optimizer, net.parameters())
    before = [p.detach().clone() for p in net.parameters()]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    backward(net)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_counts_as_zero(bad):
    net = network()
    steps = LayerwiseSteps(AdamW(lr=0.1).build(net), net.parameters())
    weight = net.stack.blocks[1].attention.out.weight
    weight.register_hook(lambda grad: torch.full_like(grad, bad))
    before, other = weight.detach().clone(), net.head.weight.detach().clone()
    backward(net)
    assert not math.isfinite(steps.gradient_norm().item())
    assert torch.equal(weight, before) and not torch.equal(net.head.weight, other)
    assert all(p.isfinite().all() for p in net.parameters())


def test_detached_it_steps_no_more():
    net = network()
    steps = LayerwiseSteps(AdamW(lr=0.1).build(net), net.parameters())
    steps.detach()
    before = net.head.weight.detach().clone()
    backward(net)
    assert torch.equal(net.head.weight, before) and net.head.weight.grad is not None


@pytest.mark.parametrize("in_backward", [True, False])
def test_stochastic_rounding_widens_one_parameter_at_a_time(in_backward):
    net = network().bfloat16()
    optimizer = AdamW(lr=0.1).build(net)
    StochasticRounding(optimizer)
    widened = []
    optimizer.register_step_pre_hook(
        lambda opt, *_: widened.append(sum(p.numel() for g in opt.param_groups for p in g["params"]))
    )
    steps = LayerwiseSteps(optimizer, net.parameters() if in_backward else ())
    backward(net)
    steps.step()
    assert sorted(widened) == sorted(p.numel() for p in net.parameters())
    assert all(p.grad is None for p in net.parameters())


def test_what_is_left_is_stepped_later_to_the_same_end():
    ordinary, mixed = network(), network()
    optimizer = AdamW(lr=0.1).build(ordinary)
    coefficients = [*mixed.stack.topology.parameters()]
    steps = LayerwiseSteps(AdamW(lr=0.1).build(mixed), mixed.stack.blocks.parameters())
    for _ in range(3):
        backward(ordinary)
        optimizer.step()
        optimizer.zero_grad()
        backward(mixed)
        assert all(p.grad is not None for p in coefficients)
        steps.step()
        assert all(p.grad is None for p in coefficients)
    for p, q in zip(ordinary.parameters(), mixed.parameters(), strict=True):
        assert torch.equal(p, q)

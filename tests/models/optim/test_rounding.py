"""Stochastic rounding: which values it gives and how often, and that it trains where rounding to nearest stalls."""

import math

import pytest
import torch
from torch import nn

from models.optim.adamw import Spec as AdamW
from models.optim.rounding import StochasticRounding, stochastic_bfloat16
from models.optim.sgd import Spec as Sgd

DRAWS = 40_000
SIGMAS = 5  # a draw this far off has a chance of 6e-7
LARGEST = torch.finfo(torch.bfloat16).max
SMALLEST = 2.0**-133  # subnormal


def neighbours(x: float) -> tuple[float, float]:
    """The bfloat16 values next to x, below and above, in exact arithmetic."""
    exponent = max(math.frexp(x)[1] - 8, -133)  # 8 bits of fraction, hidden one included
    ulp = 2.0**exponent
    return math.floor(x / ulp) * ulp, math.ceil(x / ulp) * ulp


def float32(x: float) -> float:
    return torch.tensor(x).item()


@pytest.mark.parametrize(
    "x",
    [
        1 + 2**-10,
        1 + 2**-8,
        math.pi,
        -math.pi,
        -1.0000001,
        1.997,  # above it the exponent changes
        -3.3e-12,
        0.999 * LARGEST,
        2.0**-126 * 1.001,  # the smallest normal ones
        SMALLEST * 1.25,
        -SMALLEST * 3.5,
        SMALLEST * 0.125,
    ],
)
def test_each_value_goes_to_its_two_neighbours_with_the_right_frequency(x):
    torch.manual_seed(0)
    x = float32(x)
    below, above = neighbours(x)
    drawn = stochastic_bfloat16(torch.full((DRAWS,), x)).double()
    assert {*drawn.tolist()} == {below, above}
    up = (x - below) / (above - below)  # the probability that makes the mean x
    sigma = math.sqrt(up * (1 - up) / DRAWS)
    assert abs((drawn == above).double().mean().item() - up) < SIGMAS * sigma
    assert abs(drawn.mean().item() - x) < SIGMAS * sigma * (above - below)


def test_a_chance_of_2_to_the_minus_16_is_met():
    """The last bit of float32 counts as well: 1.0000001 is rounded up about 61 times in 4 million."""
    torch.manual_seed(0)
    count = 4_000_000
    up = (stochastic_bfloat16(torch.full((count,), 1 + 2.0**-23)) > 1).sum().item()
    expected = count * 2.0**-16
    assert abs(up - expected) < SIGMAS * math.sqrt(expected)


def test_every_value_of_bfloat16_stays():
    bits = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    every = bits.view(torch.bfloat16)
    for seed in range(3):
        torch.manual_seed(seed)
        drawn = stochastic_bfloat16(every.float())
        assert torch.equal(drawn.isnan(), every.isnan())
        finite = ~every.isnan()
        assert torch.equal(drawn.view(torch.int16)[finite], bits[finite])  # signs of zeros and infinities too


def test_what_is_not_finite_stays_and_what_is_too_large_may_become_infinite():
    torch.manual_seed(0)
    odd = torch.tensor([math.nan, math.inf, -math.inf] * 100)
    nan_bits = torch.tensor([0x7FFFFFFF, 0x7F800001], dtype=torch.int32).view(torch.float32).repeat(100)
    drawn = stochastic_bfloat16(odd)
    assert torch.equal(drawn.nan_to_num(1, 2, 3), odd.bfloat16().nan_to_num(1, 2, 3))
    assert stochastic_bfloat16(nan_bits).isnan().all()
    beyond = stochastic_bfloat16(torch.full((1000,), torch.finfo(torch.float32).max * 0.999))
    assert {*beyond.tolist()} == {LARGEST, math.inf}


def test_draws_follow_the_seed_and_are_independent():
    x = torch.full((1000,), 1 + 2.0**-8)  # halfway
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(stochastic_bfloat16(x))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    again = stochastic_bfloat16(x)
    agree = (again == draws[2]).double().mean().item()
    assert abs(agree - 0.5) < SIGMAS * 0.5 / math.sqrt(1000)


def step_often(*, rounded: bool) -> torch.Tensor:
    """256 weights of 1 after 2000 updates of -2^-12, of which nearest rounding loses each: half a step is 2^-9."""
    net = nn.Linear(16, 16, bias=False, dtype=torch.bfloat16)
    nn.init.ones_(net.weight)
    optimizer = Sgd(lr=2.0**-12).build(net)
    if rounded:
        StochasticRounding(optimizer)
    torch.manual_seed(0)
    for _ in range(2000):
        net.weight.grad = torch.ones_like(net.weight)
        optimizer.step()
    return net.weight.detach().double()


def test_small_updates_count_on_average():
    assert torch.equal(step_often(rounded=False), torch.ones(16, 16, dtype=torch.float64))
    moved = step_often(rounded=True)
    expected = 1 - 2000 * 2.0**-12
    # An update of a part u of a step varies by u (1 - u) steps^2; steps are 2^-8 below 1 and smaller further down.
    sigma = math.sqrt(2000 * (1 / 16) * (15 / 16)) * 2.0**-8 / 16
    assert abs(moved.mean().item() - expected) < SIGMAS * sigma


def fit(*, rounded: bool) -> float:
    """The loss of a linear map after 300 steps of AdamW at a rate below half a step of most of its weights."""
    torch.manual_seed(0)
    net = nn.Linear(32, 32, bias=False, dtype=torch.bfloat16)
    nn.init.constant_(net.weight, 1.0)
    x = torch.randn(64, 32).bfloat16()
    target = x @ torch.full((32, 32), 0.75).bfloat16()
    optimizer = AdamW(lr=1e-3).build(net)
    if rounded:
        StochasticRounding(optimizer)
    for _ in range(300):
        loss = (net(x) - target).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def test_training_goes_on_where_rounding_to_nearest_stalls():
    plain, rounded = fit(rounded=False), fit(rounded=True)
    assert plain > 1 and rounded < 0.05 * plain


def test_float32_parameters_are_stepped_as_ever():
    """And a parameter without a gradient is left alone."""
    narrow, wide, idle = (nn.Parameter(torch.ones(4, dtype=d)) for d in (torch.bfloat16, torch.float32, torch.bfloat16))
    same = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([{"params": [narrow, idle]}, {"params": [wide]}], lr=1e-4)
    other = torch.optim.AdamW([same], lr=1e-4)
    StochasticRounding(optimizer)
    for p in (narrow, wide, same):
        p.grad = torch.full_like(p, 0.5)
    optimizer.step()
    other.step()
    assert torch.equal(wide, same) and torch.equal(idle, torch.ones_like(idle))
    assert optimizer.state[narrow]["exp_avg"].dtype == torch.float32
    assert [group["params"] for group in optimizer.param_groups] == [[narrow, idle], [wide]]

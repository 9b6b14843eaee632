"""What every optimizer must do. A new file in `models/optim` is tested by being there."""

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.optim.base import OptimSpec
from models.stack import Stack
from models.topology.ancre import Spec as Ancre
from orchestrator import kinds

# What a kind needs beside its defaults; decay where it has one, so that the tests can see whom it touches.
TABLES: dict[str, dict[str, Any]] = {"adamw": {"lr": 1e-2, "weight_decay": 0.5}}

pytestmark = pytest.mark.parametrize("kind", kinds.names("optim"))


def read(kind: str) -> OptimSpec:
    spec: OptimSpec = kinds.parse("optim", {"kind": kind} | TABLES.get(kind, {}))
    return spec


def network() -> Stack:
    torch.manual_seed(0)
    return Stack([nn.Linear(8, 8) for _ in range(3)], Ancre(temperature=1.0), width=8, returns="branch")


def loss(net: nn.Module) -> Tensor:
    """How far the network is from doubling its input."""
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    distance: Tensor = (net(x) - 2 * x).square().mean()
    return distance


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net).backward()
        optimizer.step()


def test_spec_survives_json_and_hashing(kind: str) -> None:
    spec = read(kind)
    again = kinds.parse("optim", json.loads(spec.model_dump_json()))
    assert again == spec and hash(again) == hash(spec)
    assert spec.kind == kind
    assert kinds.summary("optim", kind)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_the_rate_is_a_positive_number(kind: str, rate: float) -> None:
    with pytest.raises(ValueError, match="lr"):
        kinds.parse("optim", {"kind": kind} | TABLES.get(kind, {}) | {"lr": rate})


def test_every_parameter_is_trained_once_at_the_same_rate(kind: str) -> None:
    net = network()
    groups = read(kind).build(net).param_groups
    trained = [id(p) for group in groups for p in group["params"]]
    assert sorted(trained) == sorted(id(p) for p in net.parameters())
    assert {group["lr"] for group in groups} == {read(kind).lr}


def test_steps_lower_a_loss(kind: str) -> None:
    net = network()
    before = loss(net).item()
    train(net, read(kind).build(net), steps=20)
    assert loss(net).item() < before


def test_state_is_as_large_as_it_says(kind: str) -> None:
    net = network()
    optimizer = read(kind).build(net)
    train(net, optimizer, steps=2)
    tensors = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    numbers = sum(tensor.numel() for tensor in tensors if tensor.ndim)  # a 0-dimensional one counts steps
    assert numbers == read(kind).state_numbers() * sum(p.numel() for p in net.parameters())


def test_coefficients_do_not_decay(kind: str) -> None:
    net = network()
    optimizer = read(kind).build(net)
    (c,) = net.topology.parameters()
    with torch.no_grad():
        c += 1.0
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = c.detach().clone()
    optimizer.step()
    assert torch.equal(c, before)


def test_coefficients_train_like_the_weights(kind: str) -> None:
    net = network()
    (c,) = net.topology.parameters()
    before = c.detach().clone()
    train(net, read(kind).build(net), steps=1)
    assert (c - before).abs().max() > 0


def test_state_dict_continues_where_it_stopped(kind: str) -> None:
    straight, resumed = network(), network()
    train(straight, read(kind).build(straight), steps=6)
    first = read(kind).build(resumed)
    train(resumed, first, steps=3)
    second = read(kind).build(resumed)
    second.load_state_dict(first.state_dict())
    train(resumed, second, steps=3)
    for one, other in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_planning_imports_no_torch(kind: str) -> None:
    program = (
        "import json, sys\n"
        "from orchestrator import kinds\n"
        "kinds.parse('optim', json.loads(sys.argv[1])).state_numbers()\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    table = json.dumps({"kind": kind} | TABLES.get(kind, {}))
    subprocess.run([sys.executable, "-c", program, table], check=True)

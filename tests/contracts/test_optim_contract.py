"""What every optimizer must do. A new file in `models/optim` is tested by being there."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from models.optim.base import OptimSpec
from models.optim.layerwise import LayerwiseSteps
from models.optim.parts import Shape, shapes
from models.optim.rounding import StochasticRounding
from models.stack import Stack
from models.topology.ancre import Spec as Ancre
from orchestrator import kinds

# What a kind needs beside its defaults; decay where it has one, so that the tests can see whom it touches. GaLore's
# second subspace is chosen at step 3, counted from 0.
TABLES: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 1e-2, "weight_decay": 0.5},
    "galore": {"lr": 1e-2, "rank": 3, "update_gap": 3},
    "muon": {"lr": 1e-2, "weight_decay": 0.5},
    "contracts.outside_optim": {"lr": 1e-1},
}

pytestmark = pytest.mark.parametrize("kind", [*kinds.names("optim"), "contracts.outside_optim"])


class Net(nn.Module):
    """Something of every part: tall and wide matrices in blocks, a table, biases and norms, and coefficients."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 8)) for _ in range(3)]
        self.stack = Stack(blocks, Ancre(temperature=1.0), width=8, returns="branch")
        self.head = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.stack(x))
        return out


def read(kind: str) -> OptimSpec:
    spec: OptimSpec = kinds.parse("optim", {"kind": kind} | TABLES.get(kind, {}))
    return spec


def network(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def loss(net: nn.Module) -> Tensor:
    """How far the network is from doubling its input."""
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)).to(next(net.parameters()).dtype)
    distance: Tensor = (net(x) - 2 * x).square().mean()
    return distance


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net).backward()
        optimizer.step()
    optimizer.zero_grad()


def train_layerwise(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    layerwise = LayerwiseSteps(optimizer, net.parameters())
    for _ in range(steps):
        loss(net).backward()
    layerwise.detach()


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name


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


def test_coefficients_have_a_group_of_their_own(kind: str) -> None:
    net = network()
    (c,) = net.stack.topology.parameters()
    groups = read(kind).build(net).param_groups
    assert [[id(p) for p in group["params"]] for group in groups if any(p is c for p in group["params"])] == [[id(c)]]


def test_steps_lower_a_loss(kind: str) -> None:
    net = network()
    before = loss(net).item()
    train(net, read(kind).build(net), steps=20)
    assert loss(net).item() < before


def test_state_is_as_large_as_it_says(kind: str) -> None:
    net = network()
    optimizer = read(kind).build(net)
    train(net, optimizer, steps=4)
    tensors = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    kept = sum(tensor.numel() for tensor in tensors if tensor.ndim)  # a 0-dimensional one counts steps
    assert kept == read(kind).state_numbers(shapes(net))


def test_a_network_without_blocks_is_trained_or_refused_in_one_line(kind: str) -> None:
    spec, bare = read(kind), nn.Linear(8, 8)
    assert shapes(bare) == [Shape((8, 8), "table"), Shape((8,), "vector")]
    try:
        spec.check(shapes(bare))
    except ValueError as refusal:
        assert "no matrix" in str(refusal) and "\n" not in str(refusal)
        with pytest.raises(ValueError, match="no matrix"):
            spec.build(bare)
    else:
        train(bare, spec.build(bare), steps=1)


def test_a_network_of_block_matrices_alone_is_trained(kind: str) -> None:
    torch.manual_seed(0)
    spec, blocks = read(kind), nn.ModuleList([nn.Linear(8, 8, bias=False)])
    spec.check(shapes(blocks))
    before = loss(blocks[0]).item()
    train(blocks[0], spec.build(blocks), steps=5)
    assert loss(blocks[0]).item() < before


def test_coefficients_do_not_decay(kind: str) -> None:
    net = network()
    optimizer = read(kind).build(net)
    (c,) = net.stack.topology.parameters()
    with torch.no_grad():
        c += 1.0
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = c.detach().clone()
    optimizer.step()
    assert torch.equal(c, before)


def test_coefficients_train_like_the_weights(kind: str) -> None:
    net = network()
    (c,) = net.stack.topology.parameters()
    before = c.detach().clone()
    train(net, read(kind).build(net), steps=1)
    assert (c - before).abs().max() > 0


@pytest.mark.parametrize("stop", [2, 3, 4])
def test_state_dict_continues_where_it_stopped(kind: str, stop: int) -> None:
    straight, resumed = network(), network()
    train(straight, read(kind).build(straight), steps=7)
    first = read(kind).build(resumed)
    train(resumed, first, steps=stop)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = read(kind).build(resumed)
    second.load_state_dict(torch.load(file, weights_only=True))
    train(resumed, second, steps=7 - stop)
    assert_same(straight, resumed)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
@pytest.mark.parametrize("stop", [2, 4])
def test_a_distributed_checkpoint_continues_where_it_stopped(kind: str, stop: int, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    straight, stopped, resumed = network(), network(), network()
    train(straight, read(kind).build(straight), steps=7)
    first = read(kind).build(stopped)
    train(stopped, first, steps=stop)
    dcp.save({"optimizer": get_optimizer_state_dict(stopped, first)}, checkpoint_id=tmp_path, no_dist=True)
    resumed.load_state_dict(stopped.state_dict())
    second = read(kind).build(resumed)
    state = {"optimizer": get_optimizer_state_dict(resumed, second)}  # makes it by a step at rate 0
    assert_same(stopped, resumed)
    dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    set_optimizer_state_dict(resumed, second, state["optimizer"])
    assert_same(stopped, resumed)
    train(resumed, second, steps=7 - stop)
    assert_same(straight, resumed)


def test_layerwise_steps_are_the_same_steps(kind: str) -> None:
    at_once, layerwise = network(), network()
    train(at_once, read(kind).build(at_once), steps=5)
    train_layerwise(layerwise, read(kind).build(layerwise), steps=5)
    assert_same(at_once, layerwise)


def test_layerwise_and_ordinary_steps_go_on_from_each_other(kind: str) -> None:
    straight, changing = network(), network()
    train(straight, read(kind).build(straight), steps=6)
    optimizer = read(kind).build(changing)
    for change in (train, train_layerwise, train):
        change(changing, optimizer, steps=2)
        state = get_optimizer_state_dict(changing, optimizer)
        optimizer = read(kind).build(changing)
        set_optimizer_state_dict(changing, optimizer, state)
    assert_same(straight, changing)


def run_narrow(kind: str, *, layerwise: bool, parts: tuple[int, ...]) -> nn.Module:
    """Train bfloat16 weights with stochastic rounding for so many steps each, through a checkpoint between them."""
    net, state = network().bfloat16(), None
    assert {p.dtype for p in net.parameters()} == {torch.bfloat16, torch.float32}
    torch.manual_seed(2)
    for steps in parts:
        optimizer = read(kind).build(net)
        StochasticRounding(optimizer)
        if state:
            set_optimizer_state_dict(net, optimizer, state)
        (train_layerwise if layerwise else train)(net, optimizer, steps)
        state = get_optimizer_state_dict(net, optimizer)
        kept = [value for held in optimizer.state.values() for value in held.values() if isinstance(value, Tensor)]
        assert {tensor.dtype for tensor in kept} <= {torch.float32}
        assert {*optimizer.state} <= {*net.parameters()}
    return net


@pytest.mark.parametrize("layerwise", [False, True])
def test_narrow_weights_keep_a_state_in_float32(kind: str, layerwise: bool) -> None:
    straight = run_narrow(kind, layerwise=layerwise, parts=(5,))
    assert_same(straight, run_narrow(kind, layerwise=layerwise, parts=(2, 3)))
    assert loss(straight).item() < loss(network().bfloat16()).item()


def test_planning_imports_no_torch(kind: str) -> None:
    program = (
        "import json, sys\n"
        "from models.llama_spec import LlamaSpec\n"
        "from models.topology.ancre import Spec\n"
        "from orchestrator import kinds\n"
        "shapes = LlamaSpec(size='60m').shapes(Spec())\n"
        "spec = kinds.parse('optim', json.loads(sys.argv[1]))\n"
        "spec.check(shapes)\n"
        "spec.state_numbers(shapes)\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    table = json.dumps({"kind": kind} | TABLES.get(kind, {}))
    path = {"PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program, table], check=True, env=path)

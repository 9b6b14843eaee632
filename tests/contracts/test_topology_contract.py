"""What every topology must do. A new file in `models/topology` is tested by being there."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from models import snapshot
from models.stack import Stack
from models.topology.base import TopologySpec
from models.topology.frozen import Spec as Frozen
from orchestrator import kinds

OUTSIDE = "contracts.outside_topology"
KINDS = [*kinds.names("topology"), OUTSIDE]
WEIGHTED = {"softmax", "free", "constant"}  # rules whose states are weighted sums, as p says
INPUT_ALONE = {"attention-residual"}  # kinds that have no matrix: every weight depends on the input
DEPTH, WIDTH = 5, 6

# What a kind needs beside its defaults, to connect DEPTH blocks.
TABLES: dict[str, dict[str, Any]] = {
    "shortcuts": {"shortcuts": "0:2+1:4+2:5"},
    "frozen": {
        "weights": [[(i + j) / 10 if i < j else 0.0 for j in range(DEPTH + 1)] for i in range(DEPTH + 1)],
        "inner_residual": "keep",
    },
}

pytestmark = pytest.mark.parametrize("kind", KINDS)


def read(kind: str) -> TopologySpec:
    spec: TopologySpec = kinds.parse("topology", {"kind": kind} | TABLES.get(kind, {}))
    return spec


def branch() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


class Block(nn.Module):
    """x + r(x) of the same block."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.branch(x)
        return out


def branches() -> list[nn.Module]:
    torch.manual_seed(0)
    return [branch() for _ in range(DEPTH)]


def build(kind: str, **options: Any) -> Stack:
    """A stack of branches, with coefficients moved off their start, as training would."""
    stack = Stack(branches(), read(kind), width=WIDTH, returns="branch", **options)
    with torch.no_grad():
        for coefficients in stack.topology.parameters():
            coefficients += 0.01 * torch.randn(coefficients.shape, generator=torch.Generator().manual_seed(1))
    return stack


def inputs() -> Tensor:
    return torch.randn(2, 3, WIDTH, generator=torch.Generator().manual_seed(2))


def test_spec_survives_json_and_hashing(kind: str) -> None:
    spec = read(kind)
    again = kinds.parse("topology", json.loads(spec.model_dump_json()))
    assert again == spec and hash(again) == hash(spec)
    assert spec.kind == kind
    assert kinds.summary("topology", kind)


def test_spec_is_frozen_and_strict(kind: str) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        read(kind).kind = "other"
    with pytest.raises(ValidationError, match="no_such_field"):
        kinds.parse("topology", {"kind": kind, "no_such_field": 1} | TABLES.get(kind, {}))


def test_check_takes_the_depth_and_refuses_none(kind: str) -> None:
    spec = read(kind)
    spec.check(DEPTH)
    for depth in (0, -1):
        with pytest.raises(ValueError, match=rf"^[^\n]*{depth}[^\n]*$"):
            spec.check(depth)
    with pytest.raises(ValueError):
        Stack([], spec, width=WIDTH)


def test_coefficients_are_counted_before_they_are_built(kind: str) -> None:
    topology = read(kind).build(DEPTH, WIDTH)
    assert topology.depth == DEPTH
    assert sum(p.numel() for p in topology.parameters() if p.requires_grad) == read(kind).num_coefficients(DEPTH, WIDTH)


def test_coefficients_lead_forward(kind: str) -> None:
    p = build(kind).topology.coefficients()
    if p is None:
        assert kind in INPUT_ALONE
        return
    assert p.shape == (DEPTH + 1, DEPTH + 1)
    assert p.dtype == torch.float32
    assert torch.equal(p, p.triu(1))
    assert p.isfinite().all()


def test_forward_keeps_the_shape_and_backward_reaches_everything(kind: str) -> None:
    stack, x = build(kind), inputs().requires_grad_()
    out = stack(x)
    assert out.shape == x.shape
    out.square().sum().backward()
    gradients = [x.grad, *(p.grad for p in stack.parameters())]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@torch.no_grad()
def loss_beside(stack: Stack, coefficients: Tensor, shift: Tensor) -> float:
    """The loss where `coefficients`, a parameter of the stack, are shifted."""
    kept = coefficients.clone()
    coefficients += shift
    loss: float = stack(inputs().double()).square().sum().item()
    coefficients.copy_(kept)
    return loss


def test_gradient_of_the_coefficients_is_the_slope_of_the_loss(kind: str) -> None:
    stack = build(kind).double()
    for coefficients in stack.topology.parameters():
        (gradient,) = torch.autograd.grad(stack(inputs().double()).square().sum(), coefficients)
        step = 1e-3 * gradient / gradient.norm()
        rise = loss_beside(stack, coefficients, step) - loss_beside(stack, coefficients, -step)
        assert rise == pytest.approx(2 * (gradient * step).sum().item(), rel=0.01)


def test_nothing_stays_between_forwards(kind: str) -> None:
    stack, x = build(kind), inputs()
    first = stack(x)
    stack(torch.ones(1, WIDTH))
    assert torch.equal(stack(x), first)
    first.sum().backward()  # the graph of the first forward is whole


def test_same_spec_same_network(kind: str) -> None:
    assert torch.equal(build(kind)(inputs()), build(kind)(inputs()))


def test_blocks_and_branches_are_the_same_network(kind: str) -> None:
    stack = build(kind)
    blocks = Stack([Block(branch) for branch in branches()], stack.topology, returns="block")
    torch.testing.assert_close(blocks(inputs()), stack(inputs()))


def test_recomputing_blocks_changes_no_gradient(kind: str) -> None:
    gradients = []
    for checkpoint in (False, True):
        stack = build(kind, checkpoint=checkpoint)
        stack(inputs()).square().sum().backward()
        gradients.append([p.grad for p in stack.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_bfloat16_keeps_coefficients_in_float32(kind: str) -> None:
    stack, x = build(kind), inputs()
    expected = stack(x)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = stack(x)
    mixed.float().sum().backward()
    torch.testing.assert_close(mixed.float(), expected, rtol=0.05, atol=0.1)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in stack.parameters())
    stack.to(torch.bfloat16)
    assert stack(x.bfloat16()).dtype == torch.bfloat16
    assert {p.dtype for p in stack.topology.parameters()} <= {torch.float32}


def test_state_dict_restores_the_network(kind: str) -> None:
    trained, fresh = build(kind), Stack(branches(), read(kind), width=WIDTH, returns="branch")
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh(inputs()), trained(inputs()))


def test_topology_file_is_json_and_can_be_frozen_where_it_is_a_weighted_sum(kind: str, tmp_path: Path) -> None:
    stack, path = build(kind), tmp_path / "topology.json"
    entry = stack.topology.snapshot()
    path.write_bytes(snapshot.dump({"net": entry}))
    network = snapshot.read(path)["net"]
    assert (network.kind, network.depth) == (kind, DEPTH)
    p = stack.topology.coefficients()
    assert (network.p is None) == (p is None)
    if p is not None:
        torch.testing.assert_close(torch.tensor(network.p), p)
    if entry["rule"] not in WEIGHTED:
        with pytest.raises(ValidationError, match=rf"network 'net' \({kind}\) is no weighted sum of states"):
            Frozen(path=str(path))
        return
    frozen = Stack(branches(), Frozen(path=str(path)), width=WIDTH, returns="branch")
    torch.testing.assert_close(frozen(inputs()), stack(inputs()))


@pytest.mark.parametrize("depth", [1, 9])
def test_any_depth_that_passes_the_check_is_built(kind: str, depth: int) -> None:
    spec = read(kind)
    try:
        spec.check(depth)
    except ValueError as error:
        assert "\n" not in str(error)  # one line; this kind is made for another depth
        return
    stack = Stack([branch() for _ in range(depth)], spec, width=WIDTH, returns="branch")
    assert stack(inputs()).shape == inputs().shape
    p = stack.topology.coefficients()
    assert p is None or p.shape == (depth + 1, depth + 1)


def test_planning_imports_no_torch(kind: str) -> None:
    """Reading, checking and counting: what `ancre plan` does ten thousand times."""
    table = {"kind": kind} | TABLES.get(kind, {})
    program = (
        "import json, sys\n"
        f"sys.path.append({str(Path(__file__).parents[1])!r})\n"
        "from orchestrator import kinds\n"
        "spec = kinds.parse('topology', json.loads(sys.argv[1]))\n"
        f"spec.check({DEPTH}), spec.num_coefficients({DEPTH}, {WIDTH}), hash(spec), spec.model_dump_json()\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, json.dumps(table)], check=True)

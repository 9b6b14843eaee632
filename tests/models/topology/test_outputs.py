"""Topologies that are sums of block outputs: their recorded matrix against blocks whose outputs can be told apart, the
sums against loops, and what leaves them at the start."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models import snapshot
from models.stack import Stack
from models.topology import attention_residual, cascaded, denseformer, hyper_connections, layerscale, mhc, rezero
from models.topology.base import TopologySpec
from models.topology.frozen import Spec as Frozen

WIDTH = 6
SPECS = [
    hyper_connections.Spec(),
    mhc.Spec(),
    denseformer.Spec(),
    rezero.Spec(),
    layerscale.Spec(),
    attention_residual.Spec(),
    attention_residual.Spec(groups=2),
]
ALL = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)


def network(spec: TopologySpec, depth: int, *, spread: float = 0.5) -> Stack:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(depth)]
    made = Stack(blocks, spec, width=WIDTH, returns="branch").double()
    with torch.no_grad():
        for p in made.topology.parameters():
            p += spread * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    return made


def inputs() -> Tensor:
    return torch.randn(2, 3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def assert_same(made: Stack, theirs: Tensor, x: Tensor) -> None:
    """Values and all gradients, where parameters of topologies are float32."""
    ours = made(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    wanted = [x, *made.parameters()]
    grads = [torch.autograd.grad((out**3).sum(), wanted, materialize_grads=True) for out in (ours, theirs)]
    for mine, other in zip(*grads, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


class Unit(nn.Module):
    """Returns the unit vector e_j whatever it reads, and notes what it reads."""

    def __init__(self, j: int) -> None:
        super().__init__()
        self.j = j

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        return torch.eye(x.shape[-1])[self.j].expand_as(x)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.kind != "attention-residual"], ids=lambda s: s.kind)
def test_the_matrix_is_what_each_step_holds_of_each_output(spec: TopologySpec) -> None:
    """With v_j = e_j, a state is a column of s. Weights that depend on the input are taken away."""
    depth = 5
    blocks = [Unit(j) for j in range(1, depth + 1)]
    topology = spec.build(depth, depth + 1)
    with torch.no_grad():
        for name, p in topology.named_parameters():
            if name != "project":
                p += 0.3 * torch.randn(p.shape[:2] + (1,) * (p.ndim - 2) if spec.kind != "layerscale" else (depth, 1))
    returns: Any = "block" if topology.inner_residual == "keep" else "branch"
    last = Stack(blocks, topology, returns=returns)(torch.eye(depth + 1)[:1])
    states = torch.cat([*(block.seen for block in blocks), last]).T  # (K+1, K+1): column j is h_j
    torch.testing.assert_close(topology.sums(), states, rtol=1e-4, atol=1e-5)
    entry = topology.snapshot()
    found = torch.tensor(entry["p"]) + torch.tensor(entry["own"]).diag()
    torch.testing.assert_close(found, states, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of torch, about its own compiler
@ALL
def test_torch_compile_gives_the_same(spec: TopologySpec) -> None:
    torch.compiler.reset()
    few = {"iterations": 2} if spec.kind == "mhc" else {}  # tracing unrolls them
    made, x = network(spec.model_copy(update=few), 2), inputs()
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), made(x))
    grads = [torch.autograd.grad((f(x) ** 3).sum(), list(made.parameters())) for f in (compiled, made)]
    torch.testing.assert_close(*grads)


# --- DenseFormer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_denseformer_is_a_sum_over_whole_blocks(depth: int) -> None:
    made, x = network(denseformer.Spec(), depth), inputs().requires_grad_()
    weights = iter(made.topology.a)
    values, h = [x], x
    for block in made.blocks:
        values.append(h + block(h))
        h = sum(next(weights) * value for value in values)
    assert_same(made, h, x)
    assert denseformer.Spec().num_coefficients(depth) == depth * (depth + 3) // 2 == made.topology.a.numel()


def test_denseformer_starts_as_the_residual_network() -> None:
    made, plain = network(denseformer.Spec(), 6, spread=0), network(cascaded.Spec(), 6)
    torch.testing.assert_close(made(inputs()), plain(inputs()), rtol=1e-14, atol=1e-14)


# --- gains ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [rezero.Spec(), layerscale.Spec(initial=0.3)], ids=lambda spec: spec.kind)
def test_branches_are_scaled_before_they_are_added(spec: TopologySpec) -> None:
    made, x = network(spec, 4), inputs().requires_grad_()
    h = x
    for gain, block in zip(made.topology.gain, made.blocks, strict=True):
        h = h + gain * block(h)
    assert_same(made, h, x)


def test_rezero_starts_as_the_identity() -> None:
    assert torch.equal(network(rezero.Spec(), 6, spread=0)(inputs()), inputs())
    assert rezero.Spec().num_coefficients(24) == 24


@pytest.mark.parametrize(("depth", "gain"), [(1, 0.1), (18, 0.1), (19, 1e-5), (24, 1e-5), (25, 1e-6), (36, 1e-6)])
def test_layerscale_starts_smaller_where_networks_are_deeper(depth: int, gain: float) -> None:
    made = layerscale.Spec().build(depth, 3)
    assert torch.equal(made.gain, torch.full((depth, 3), gain))
    assert layerscale.Spec().num_coefficients(depth, 3) == 3 * depth
    assert torch.equal(layerscale.Spec(initial=1).build(depth, 3).gain, torch.ones(depth, 3))


# --- attention over depth ---------------------------------------------------------------------------------------------


def attend(made: Stack, x: Tensor, groups: list[int]) -> Tensor:
    """The sums as the paper writes them; `groups`: of each block, the number of its group."""
    outputs: list[tuple[int, Tensor]] = [(-1, x)]  # (group, output) of x and of each block
    h = x
    for block, query, group in zip(made.blocks, made.topology.query, groups, strict=True):
        outputs.append((group, block(h)))
        values = [sum(v for g, v in outputs if g == one) for one in sorted({g for g, _ in outputs})]
        logits = [(v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt() * query).sum(-1) for v in values]
        total = sum(logit.exp() for logit in logits)
        h = sum((logit.exp() / total).unsqueeze(-1) * v for logit, v in zip(logits, values, strict=True))
    return h


@pytest.mark.parametrize(
    ("groups", "numbers"),
    [(None, range(7)), (7, range(7)), (1, [0] * 7), (2, [0, 0, 0, 0, 1, 1, 1]), (3, [0, 0, 0, 1, 1, 2, 2])],
)
def test_attention_over_depth_is_a_softmax_over_outputs_or_sums_of_groups(groups: int | None, numbers: Any) -> None:
    made, x = network(attention_residual.Spec(groups=groups), 7), inputs().requires_grad_()
    assert_same(made, attend(made, x, list(numbers)), x)


def test_attention_over_depth_starts_as_the_mean() -> None:
    made, x = network(attention_residual.Spec(), 4, spread=0), inputs()
    values, h = [x], x
    for block in made.blocks:
        values.append(block(h))
        h = sum(values) / len(values)
    torch.testing.assert_close(made(x), h)
    assert attention_residual.Spec().num_coefficients(4, WIDTH) == 4 * WIDTH


def test_more_groups_than_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^groups 5: 4 blocks make 4 groups at most$"):
        attention_residual.Spec(groups=5).check(4)
    attention_residual.Spec(groups=4).check(4)


# --- what they leave behind -------------------------------------------------------------------------------------------


def test_a_file_without_a_matrix_says_so_and_a_weighted_sum_cannot() -> None:
    entry = network(attention_residual.Spec(), 3).topology.snapshot()
    assert snapshot.Network.model_validate(entry).p is None
    for field, value, message in (
        ("rule", "free", "p is null, which rule 'free'"),
        ("own", [1.0], "own has 1 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            snapshot.Network.model_validate(entry | {field: value})


@pytest.mark.parametrize("named", [None, "net"])
def test_frozen_refuses_what_is_no_weighted_sum_of_states(named: str | None, tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_bytes(snapshot.dump({"net": network(denseformer.Spec(), 3).topology.snapshot()}))
    with pytest.raises(ValueError, match=r"network 'net' \(denseformer\) is no weighted sum of states"):
        Frozen(path=str(path), network=named)


@pytest.mark.parametrize("spec", [layerscale.Spec(), attention_residual.Spec()], ids=lambda spec: spec.kind)
def test_a_width_is_needed(spec: TopologySpec) -> None:
    with pytest.raises(ValueError, match=rf"^topology '{spec.kind}' has weights for each feature: give the width"):
        Stack([nn.Identity()], spec)

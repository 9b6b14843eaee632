"""Hyper-connections and mHC against the residual network, loops over streams, conserved sums and published counts."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from models.hyper import Streams, doubly_stochastic
from models.llama_spec import LlamaSpec
from models.stack import Stack
from models.topology import cascaded, hyper_connections, mhc
from models.topology.base import TopologySpec

WIDTH, STREAMS = 6, 4
HC, MHC = hyper_connections.Spec(), mhc.Spec()
FLAT = mhc.Spec(weights_from="all-streams")
ALL = pytest.mark.parametrize("spec", [HC, MHC, FLAT], ids=["hc", "mhc", "mhc-all"])


def network(spec: TopologySpec, depth: int, *, spread: float = 0.0, checkpoint: bool = False) -> Stack:
    """The same blocks for every topology, in float64; its parameters `spread` around their start."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(depth)]
    made = Stack(blocks, spec, width=WIDTH, returns="branch", checkpoint=checkpoint).double()
    with torch.no_grad():
        for p in made.topology.parameters():
            p += spread * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    return made


def inputs() -> Tensor:
    return torch.randn(2, 3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def gradients(made: Stack, out: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((out**3).sum(), list(made.parameters()), materialize_grads=True))


@ALL
@pytest.mark.parametrize("depth", [1, 3, 9])
def test_the_network_starts_as_the_residual_one(spec: TopologySpec, depth: int) -> None:
    ours, plain = network(spec, depth), network(cascaded.Spec(), depth)
    out, expected = ours(inputs()), plain(inputs())
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)  # mHC's static part is float32
    if spec is HC:
        torch.testing.assert_close(out, expected, rtol=1e-14, atol=1e-14)
    for mine, theirs in zip(gradients(ours, out), gradients(plain, expected), strict=False):  # of the blocks
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def by_loops(made: Stack, spec: TopologySpec, x: Tensor) -> Tensor:
    """Stream by stream and feature by feature, as the papers' equations are written: a list of n streams (.., d)."""
    topology = made.topology
    rows = [x] * STREAMS
    for j, block in enumerate(made.blocks):
        static, project, gain = topology.static[j], topology.project[j], topology.gain[j]
        if spec is HC:
            normed = [gain * h / (h.square().mean(-1, keepdim=True) + 1e-6).sqrt() for h in rows]
            scale = [topology.scale[j, 0]] * (STREAMS + 1) + [topology.scale[j, 1]]
        else:
            mean = sum(h.square().mean(-1, keepdim=True) for h in rows) / STREAMS
            normed = [h / (mean + 1e-6).sqrt() for h in rows]
            normed = [torch.cat(normed, -1) * gain] if spec is FLAT else [h * gain for h in normed]
            scale = [topology.scale[j, 0]] + [topology.scale[j, 1]] * STREAMS + [topology.scale[j, 2]]

        def logit(s: int, c: int, normed: list[Tensor] = normed, project: Tensor = project) -> Tensor:
            if spec is FLAT:
                return (normed[0] * project[:, s * (STREAMS + 2) + c]).sum(-1, keepdim=True)
            return (normed[s] * project[:, c]).sum(-1, keepdim=True)

        columns = range(STREAMS + 2)
        if spec is HC:
            w = [[static[s, c] + scale[c] * logit(s, c).tanh() for c in columns] for s in range(STREAMS)]
            read, keep, write = [r[0] for r in w], [r[1:-1] for r in w], [r[-1] for r in w]
        else:
            w = [[static[s, c] + scale[c] * logit(s, c) for c in columns] for s in range(STREAMS)]
            read, write = [r[0].sigmoid() for r in w], [2 * r[-1].sigmoid() for r in w]
            keep = [[z.exp() for z in r[1:-1]] for r in w]
            for _ in range(20):
                keep = [[entry / sum(r) for entry in r] for r in keep]
                sums = [sum(r[t] for r in keep) for t in range(STREAMS)]
                keep = [[entry / sums[t] for t, entry in enumerate(r)] for r in keep]
            keep = [[entry / sum(r).clamp(min=1) for entry in r] for r in keep]
            rows_lack = [1 - sum(r) for r in keep]
            columns_lack = [1 - sum(r[t] for r in keep) for t in range(STREAMS)]
            left = sum(rows_lack)
            keep = [
                [entry + lack * columns_lack[t] / left for t, entry in enumerate(r)]
                for r, lack in zip(keep, rows_lack, strict=True)
            ]
        branch = block(sum(a * h for a, h in zip(read, rows, strict=True)))
        rows = [sum(keep[s][t] * rows[s] for s in range(STREAMS)) + write[t] * branch for t in range(STREAMS)]
    return sum(rows) / STREAMS


@ALL
def test_the_contraction_is_the_loop_over_streams(spec: TopologySpec) -> None:
    made = network(spec, 6, spread=0.5)
    ours, theirs = made(inputs()), by_loops(made, spec, inputs())
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)  # parameters are float32
    for mine, other in zip(gradients(made, ours), gradients(made, theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("spec", [MHC, FLAT], ids=["mhc", "mhc-all"])
def test_mhc_keeps_the_mean_of_the_streams(spec: TopologySpec) -> None:
    """Blocks that add nothing: whatever the weights, h_K = x, since every A is doubly stochastic."""

    class Zero(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros_like(x)

    made = Stack([Zero() for _ in range(12)], network(spec, 12, spread=2.0).topology, returns="branch")
    torch.testing.assert_close(made(inputs()), inputs(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_rows_and_columns_of_mhc_sum_to_one(spread: float) -> None:
    topology = network(MHC, 3, spread=spread).topology
    assert isinstance(topology, Streams)
    streams = torch.randn(50, STREAMS, WIDTH, generator=torch.Generator().manual_seed(3))
    weights = next(topology.steps())
    logits = torch.randn(50, STREAMS, STREAMS + 2, generator=torch.Generator().manual_seed(4)) * spread
    w = topology.weigh(logits, weights.static, weights.scale + 1)
    read, keep, write = w[..., 0], w[..., 1:-1], w[..., -1]
    for axis in (-1, -2):
        assert (keep.sum(axis) - 1).abs().max() < 1e-3
    assert (keep >= 0).all() and (read >= 0).all() and (read <= 1).all() and (write >= 0).all() and (write <= 2).all()
    u, kept, _ = topology.connect(streams, weights)
    assert u.shape == (50, WIDTH)
    torch.testing.assert_close(kept.mean(-2), streams.mean(-2), rtol=1e-4, atol=1e-4)


@given(st.integers(2, 6), st.floats(0, 300), st.integers(0, 1000))
def test_any_logits_become_doubly_stochastic(n: int, spread: float, seed: int) -> None:
    logits = spread * torch.randn(7, n, n, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    found = doubly_stochastic(logits, 20)
    (gradient,) = torch.autograd.grad(found.square().sum(), logits)
    assert gradient.isfinite().all()
    assert (found >= 0).all()
    for axis in (-1, -2):
        assert (found.sum(axis) - 1).abs().max() < 1e-5


def test_sinkhorn_is_the_limit_of_the_scalings_and_has_their_gradient() -> None:
    logits = torch.randn(5, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    limit = logits.exp()
    for _ in range(500):
        limit = limit / limit.sum(-1, keepdim=True)
        limit = limit / limit.sum(-2, keepdim=True)
    found, towards = doubly_stochastic(logits, 100), torch.rand(5, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(found, limit, rtol=1e-10, atol=1e-12)
    ours, theirs = (torch.autograd.grad((m * towards).sum(), logits)[0] for m in (found, limit))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    assert torch.autograd.gradcheck(lambda z: doubly_stochastic(z, 4), (logits,))


@pytest.mark.parametrize(
    ("spec", "width", "count", "published"),
    [(HC, 1024, 172_656, 172), (HC, 2048, 344_688, 345), (MHC, 1024, 172_680, 172), (MHC, 2048, 344_712, 345)],
)
def test_counts_are_those_of_table_6(spec: TopologySpec, width: int, count: int, published: int) -> None:
    """24 (7 d + 26) and 24 (7 d + 27), in thousands."""
    assert spec.num_coefficients(24, width) == count
    assert abs(count / 1000 - published) < 1
    with torch.device("meta"):
        built = spec.build(24, width)
    assert sum(p.numel() for p in built.parameters()) == count


def test_mhc_from_all_streams_has_the_projection_of_its_paper() -> None:
    """n d inputs, each with a gain, to n^2 + 2 n weights."""
    n, d = STREAMS, 32
    assert FLAT.num_coefficients(1, d) == n * d * (n * n + 2 * n) + n * d + (n * n + 2 * n) + 3
    assert FLAT.num_coefficients(1, d) == sum(p.numel() for p in FLAT.build(1, d).parameters())


@ALL
def test_recomputing_keeps_streams_alone_and_changes_no_gradient(spec: TopologySpec) -> None:
    found, kept = [], []
    for checkpoint in (False, True):
        made = network(spec, 4, spread=0.5, checkpoint=checkpoint)
        own = {p.untyped_storage().data_ptr() for p in made.parameters()}
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor, own: set[int] = own, sizes: dict[int, int] = sizes) -> Tensor:
            if tensor.untyped_storage().data_ptr() not in own:
                sizes[id(tensor)] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = made(inputs())
        found.append(gradients(made, out))
        kept.append(sum(sizes.values()))
    torch.testing.assert_close(found[0], found[1])
    assert kept[1] < kept[0] / 2


@ALL
def test_llama_learns_with_streams_as_with_one(spec: TopologySpec) -> None:
    """Logits at the start are the cascaded network's, in float32 and under bfloat16 autocast."""
    sizes = LlamaSpec(width=16, ffn_width=24, depth=3, heads=2, vocab_size=40)
    text = torch.randint(40, (2, 9), generator=torch.Generator().manual_seed(1))
    logits = []
    for topology in (spec, cascaded.Spec()):
        torch.manual_seed(0)
        model = sizes.build(topology)
        logits.append(model(text))
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(model(text).float(), logits[-1], rtol=0.05, atol=0.01)
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-5, atol=1e-6)


def test_reading_starts_at_stream_after_stream_and_mhc_reads_the_mean() -> None:
    assert HC.build(6, WIDTH).static[:, :, 0].argmax(1).tolist() == [0, 1, 2, 3, 0, 1]
    w = MHC.build(1, WIDTH)
    assert w.static[0, 0, 0].item() == pytest.approx(-math.log(3))


@pytest.mark.parametrize("table", [{"streams": 1}, {"streams": 17}, {"iterations": 0}, {"weights_from": "streams"}])
def test_a_wrong_spec_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(table))):
        mhc.Spec(**table)


@pytest.mark.parametrize("spec", [HC, MHC])
def test_a_width_is_needed(spec: TopologySpec) -> None:
    with pytest.raises(ValueError, match=rf"^topology '{spec.kind}' has weights for each feature: give the width"):
        Stack([nn.Identity()], spec)

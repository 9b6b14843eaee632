"""GaLore: its steps against the rule written out in NumPy, what it projects, and how much state that saves."""

import numpy as np
import pytest
import torch
from torch import nn

from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.optim.galore import Spec
from models.optim.parts import numbers
from models.optim.projected import subspace
from models.topology.ancre import Spec as Ancre

LR, RANK, GAP, SCALE, B1, B2, EPS = 0.1, 2, 3, 0.25, 0.8, 0.9, 1e-3


def written_out(weight: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """The weights after these gradients, by SVD in float64."""
    tall = weight.shape[0] >= weight.shape[1]
    m = v = q = p = None
    for t, g in enumerate(gradients, start=1):
        if (t - 1) % GAP == 0:
            u, _, vh = np.linalg.svd(g, full_matrices=False)
            basis = vh[:RANK] if tall else u[:, :RANK].T  # rows are singular vectors
            basis = np.stack([row * np.sign(row[np.abs(row).argmax()]) for row in basis])
            q, p = basis, basis.T
        r = g @ q.T if tall else p.T @ g
        m = (1 - B1) * r if m is None else B1 * m + (1 - B1) * r
        v = (1 - B2) * r**2 if v is None else B2 * v + (1 - B2) * r**2
        n = m / (np.sqrt(v) + EPS)
        size = LR * np.sqrt(1 - B2**t) / (1 - B1**t)
        weight = weight - size * SCALE * (n @ q if tall else p @ n)
    return weight


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5)])
def test_eight_steps_over_two_changes_of_subspace_follow_the_rule(shape):
    random = np.random.default_rng(0)
    weight, gradients = random.standard_normal(shape), [random.standard_normal(shape) for _ in range(8)]
    network = nn.ModuleList([nn.Linear(shape[1], shape[0], bias=False, dtype=torch.float64)])
    (p,) = network.parameters()
    p.data = torch.tensor(weight)
    spec = Spec(lr=LR, rank=RANK, update_gap=GAP, scale=SCALE, betas=(B1, B2), eps=EPS)
    optimizer = spec.build(network)
    for steps, gradient in enumerate(gradients, start=1):
        p.grad = torch.tensor(gradient)
        optimizer.step()
        expected = written_out(weight, gradients[:steps])
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-11, atol=1e-11)


def test_what_is_not_projected_gets_plain_adamw():
    size = LlamaSpec(width=8, ffn_width=12, depth=2, heads=2, vocab_size=20)
    one, other = ((torch.manual_seed(0), size.build(Ancre(temperature=1.0)))[1] for _ in range(2))
    projected = {name for name, p in one.named_parameters() if "blocks" in name and p.ndim == 2}
    galore, adamw = Spec(lr=LR, rank=3).build(one), AdamW(lr=LR).build(other)
    for step in range(3):
        random = torch.Generator().manual_seed(step)
        for p, q in zip(one.parameters(), other.parameters(), strict=True):
            p.grad = torch.randn(p.shape, generator=random)
            q.grad = p.grad.clone()
        galore.step()
        adamw.step()
    for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q) == (name not in projected), name
        assert ("projector" in galore.state[p]) == (name in projected), name


def test_a_matrix_is_projected_where_its_smaller_side_exceeds_the_rank():
    network = nn.ModuleList([nn.Linear(8, 4, bias=False), nn.Linear(5, 9, bias=False)])
    optimizer = Spec(lr=LR, rank=4).build(network)
    for p in network.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    shapes = [{name: tuple(t.shape) for name, t in optimizer.state[p].items()} for p in network.parameters()]
    assert shapes == [
        {"step": (), "exp_avg": (4, 8), "exp_avg_sq": (4, 8)},
        {"step": (), "projector": (4, 5), "exp_avg": (9, 4), "exp_avg_sq": (9, 4)},
    ]


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)])
def test_the_subspace_is_that_of_a_singular_value_decomposition(shape):
    """It keeps as much of a float32 gradient as the best of that rank, to its rounding; nearly dependent rows too."""
    random = torch.Generator().manual_seed(0)
    u = torch.linalg.qr(torch.randn(shape[0], 40, dtype=torch.float64, generator=random))[0]
    v = torch.linalg.qr(torch.randn(shape[1], 40, dtype=torch.float64, generator=random))[0]
    values = 10.0 ** -torch.arange(0, 8, 0.2, dtype=torch.float64)
    exact = (u * values) @ v.T
    basis = subspace(exact.float(), 10).double()
    rest = exact - (exact @ basis.T @ basis if shape[0] > shape[1] else basis @ basis.T @ exact)
    torch.testing.assert_close(rest.norm(), values[10:].norm(), rtol=1e-5, atol=0)


def test_in_narrow_weights_the_state_is_narrow():
    network = nn.ModuleList([nn.Linear(6, 5, bias=False, dtype=torch.bfloat16)])
    (p,) = network.parameters()
    optimizer = Spec(lr=LR, rank=2).build(network)
    p.grad = torch.randn_like(p)
    optimizer.step()
    assert {name: t.dtype for name, t in optimizer.state[p].items() if t.ndim} == dict.fromkeys(
        ("projector", "exp_avg", "exp_avg_sq"), torch.bfloat16
    )


def test_a_zero_gradient_moves_nothing():
    network = nn.ModuleList([nn.Linear(6, 5, bias=False)])
    (p,) = network.parameters()
    before = p.detach().clone()
    optimizer = Spec(lr=LR, rank=2).build(network)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert torch.equal(p, before)


def test_no_matrix_to_project_is_one_line():
    shapes = LlamaSpec(size="nano").shapes(Ancre())
    Spec(lr=LR, rank=63).check(shapes)
    with pytest.raises(ValueError, match=r"^an optimizer with no matrix to project: .* the widest has 64$"):
        Spec(lr=LR, rank=64).check(shapes)
    with pytest.raises(ValueError, match=r"^an optimizer with no matrix to project: .* there are none$"):
        Spec(lr=LR, rank=1).build(nn.Linear(4, 4))


def test_state_of_the_60m_decoder_by_hand():
    """Per block 4 matrices of 512 x 512 and 3 of 1376 x 512, projector and two moments each; two moments else."""
    shapes = LlamaSpec(size="60m").shapes(Ancre())
    square, long = 128 * 512 + 2 * 128 * 512, 128 * 512 + 2 * 128 * 1376
    assert Spec(lr=LR, rank=128).state_numbers(shapes) == 8 * (4 * square + 3 * long) + 2 * (
        2 * 32000 * 512 + 17 * 512 + 36
    )
    assert AdamW(lr=LR).state_numbers(shapes) == 2 * numbers(shapes)

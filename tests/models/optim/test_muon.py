"""Muon: its matrices move as torch's Muon moves them, everything else as AdamW does."""

import pytest
import torch
from torch import nn

from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.optim.muon import Spec
from models.topology.hyper_connections import Spec as HyperConnections


def test_steps_are_those_of_two_optimizers():
    size = LlamaSpec(width=8, ffn_width=12, depth=2, heads=2, vocab_size=20)
    one, other, third = ((torch.manual_seed(0), size.build(HyperConnections()))[1] for _ in range(3))
    matrices = {name for name, p in one.named_parameters() if "blocks" in name and p.ndim == 2}
    paired = Spec(lr=0.1, weight_decay=0.2, betas=(0.8, 0.9)).build(one)
    muon = torch.optim.Muon(
        [p for name, p in other.named_parameters() if name in matrices],
        lr=0.1,
        weight_decay=0.2,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = AdamW(lr=0.1, weight_decay=0.2, betas=(0.8, 0.9)).build(third)
    for step in range(3):
        random = torch.Generator().manual_seed(step)
        for p, q, r in zip(one.parameters(), other.parameters(), third.parameters(), strict=True):
            p.grad = torch.randn(p.shape, generator=random)
            q.grad, r.grad = p.grad.clone(), p.grad.clone()
        for optimizer in (paired, muon, adamw):
            optimizer.step()
    reference = {**dict(third.named_parameters()), **{n: p for n, p in other.named_parameters() if n in matrices}}
    for name, p in one.named_parameters():
        assert torch.equal(p, reference[name]), name


def test_at_one_rate_its_steps_are_as_large_as_those_of_adamw():
    """AdamW's steps have RMS of about 0.2 of the rate in training, and 1 of the rate in the first; 2502.16982, 2.2."""
    network = nn.ModuleList([nn.Linear(64, 256, bias=False)])
    (p,) = network.parameters()
    before = p.detach().clone()
    optimizer = Spec(lr=0.1).build(network)
    p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    rms = (p.detach() - before).square().mean().sqrt().item() / 0.1
    assert rms == pytest.approx(0.2, rel=0.2)  # Newton-Schulz leaves singular values between 0.7 and 1.2


def test_no_matrix_is_one_line():
    with pytest.raises(ValueError, match=r"^an optimizer with no matrix to orthogonalise: .* inside blocks$"):
        Spec(lr=0.1).build(nn.Linear(4, 4))

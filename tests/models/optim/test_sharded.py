"""Layerwise steps and stochastic rounding of parameters of which each of two workers holds a half (FSDP2)."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from models.optim.adamw import Spec as AdamW

SCRIPT = Path(__file__).with_name("sharded_worker.py")
spec = importlib.util.spec_from_file_location("sharded_worker", SCRIPT)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What worker 0 found, which is what worker 1 found."""
    folder = tmp_path_factory.mktemp("sharded")
    commands = [[sys.executable, SCRIPT, str(rank), str(folder)] for rank in range(worker.WORKERS)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    one, other = (torch.load(folder / f"{rank}.pt") for rank in range(worker.WORKERS))
    for way in one:
        assert all(torch.equal(one[way]["weights"][name], p) for name, p in other[way]["weights"].items())
        assert torch.equal(one[way]["norms"], other[way]["norms"])
    return one


def test_all_ways_of_stepping_are_the_training_of_one_worker(found):
    net = worker.network(torch.float32)
    optimizer, norms = AdamW(lr=worker.LR).build(net), []
    for _ in range(3):
        worker.loss(net, worker.TOKENS).backward()
        norms.append(nn.utils.get_total_norm(p.grad for p in net.parameters()))
        optimizer.step()
        optimizer.zero_grad()
    for way in worker.WAYS:
        for name, p in net.named_parameters():
            torch.testing.assert_close(found[way]["weights"][name], p.detach(), rtol=1e-4, atol=1e-5)
            assert torch.equal(found[way]["weights"][name], found["at once"]["weights"][name]), (way, name)
        torch.testing.assert_close(found[way]["norms"], torch.stack(norms))


def test_narrow_shards_are_rounded_and_their_state_is_float32(found):
    exact = found["at once"]["weights"]
    for way in worker.WAYS:
        run = found[f"{way}, rounded"]
        assert run["state"] == {"torch.float32"}
        assert {p.dtype for p in run["weights"].values()} == {torch.bfloat16, torch.float32}
        for name, p in run["weights"].items():
            assert (p.float() - exact[name]).abs().mean() < worker.LR / 2, name  # each moved by up to 3 rates
    for name, p in found["one by one, rounded"]["weights"].items():  # drawn in the order of the groups, as at once
        assert torch.equal(p, found["at once, rounded"]["weights"][name])

"""Checkpoints of a training run: what they hold, whom they serve, and what is refused without running it."""

import json
import pickle
import resource
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from models.llama_spec import LlamaSpec
from models.topology import ancre, hyper_connections
from orchestrator import kinds
from orchestrator.errors import InputError
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.pretrain.parallel import Workers
from orchestrator.pretrain.sharded import METADATA, Saver, read_network

ALONE = Workers(0, 1, torch.device("cpu"))
SMALL = LlamaSpec(width=16, ffn_width=24, depth=2, heads=2, vocab_size=64)


def saver(folder: Path, spec=SMALL, topology=None, optim: str = "adamw") -> Saver:
    torch.manual_seed(0)
    network = spec.build(topology or ancre.Spec())
    optimizer = kinds.find("optim", optim)(lr=0.01).build(network)
    return Saver(Checkpoints(folder, {"trial": 1}), ALONE, network, optimizer)


def step(run: Saver, seed: int) -> None:
    torch.manual_seed(seed)
    run.network(torch.randint(0, 64, (2, 8))).square().mean().backward()
    run.optimizer.step()
    run.optimizer.zero_grad()


@pytest.fixture
def saved(tmp_path) -> Path:
    """The folder of a checkpoint, and what it was taken from goes on."""
    run = saver(tmp_path)
    step(run, 1)
    run.save(1, {"random": torch.arange(3)}, {"progress": {"step": 1, "loss": 0.5}})
    step(run, 2)  # changes every weight, while they are written or before
    run.close()
    return tmp_path / "step-00000001"


@pytest.mark.parametrize("optim", ["adamw", "sgd"])
def test_training_goes_on_as_if_it_had_not_been_interrupted(tmp_path, optim):
    run = saver(tmp_path, optim=optim)
    step(run, 1)
    run.save(1, {"random": torch.arange(3)}, {"progress": {"step": 1}})
    step(run, 2)
    run.close()
    again, random = saver(tmp_path, optim=optim), torch.zeros(3, dtype=torch.long)
    assert again.load(1, {"random": random}) == {"progress": {"step": 1}}
    assert random.tolist() == [0, 1, 2]
    step(again, 2)
    for ours, theirs in zip(again.network.parameters(), run.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_weights_alone_are_read_into_a_network(saved):
    run, network = saver(saved.parent), SMALL.build(ancre.Spec())
    run.load(1, {"random": torch.zeros(3, dtype=torch.long)})
    read_network(saved, network)
    for ours, theirs in zip(network.parameters(), run.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("spec", "topology", "message"),
    [
        (SMALL.model_copy(update={"depth": 3}), ancre.Spec(), "Missing key"),
        (SMALL.model_copy(update={"width": 32}), ancre.Spec(), "Size mismatch"),
        (SMALL, hyper_connections.Spec(), "Missing key"),
    ],
)
def test_weights_of_another_network_are_refused_in_one_line(saved, spec, topology, message):
    with pytest.raises(InputError, match=message) as caught:
        read_network(saved, spec.build(topology))
    assert str(caught.value).startswith(f"{saved}: cannot be loaded: ")
    assert "\n" not in str(caught.value)


class Payload:
    """Unpickled, it writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return exec, (f"open({str(self.file)!r}, 'w')",)


def test_a_list_of_tensors_that_runs_code_is_refused_and_does_not_run(saved, tmp_path):
    (saved / METADATA).write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(InputError, match=r"refused: it holds more than tensors \(builtins\.exec\)"):
        read_network(saved, SMALL.build(ancre.Spec()))
    assert not (tmp_path / "ran").exists()


def test_an_object_in_place_of_a_tensor_is_refused_and_does_not_run(tmp_path):
    folder = tmp_path / "step-00000001"
    state = {"network.embedding.weight": Payload(tmp_path / "ran")}
    save(state, storage_writer=FileSystemWriter(folder), no_dist=True)
    with pytest.raises(InputError, match=r"refused: it holds more than tensors|cannot be loaded") as caught:
        read_network(folder, torch.nn.ModuleDict({"embedding": torch.nn.Embedding(2, 2)}))
    assert not (tmp_path / "ran").exists()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"hello world", pickle.dumps([1])])
def test_another_list_of_tensors_is_refused_in_one_line(saved, content):
    (saved / METADATA).write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be loaded|refused") as caught:
        read_network(saved, SMALL.build(ancre.Spec()))
    assert "\n" not in str(caught.value)


def test_a_pickle_in_place_of_the_tensors_is_refused_without_advice_to_run_it(saved, tmp_path):
    (data,) = saved.glob("*.distcp")
    data.write_bytes(pickle.dumps(Payload(tmp_path / "ran"), protocol=2).ljust(data.stat().st_size, b"\0"))
    with pytest.raises(InputError, match=r"refused: it holds more than tensors \(Weights only load failed\)$"):
        read_network(saved, SMALL.build(ancre.Spec()))
    assert not (tmp_path / "ran").exists()


def test_every_file_is_vouched_for(saved):
    run = saver(saved.parent)
    files = json.loads((saved / "commit.json").read_text())["files"]
    assert set(files) == {file.name for file in saved.iterdir()} - {"commit.json"}
    assert all(sha256((saved / name).read_bytes()).hexdigest() == file["sha256"] for name, file in files.items())
    data = next(file for file in saved.iterdir() if file.suffix == ".distcp")
    assert run.checkpoints.newest() == 1
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    assert run.checkpoints.newest() is None
    data.unlink()
    assert run.checkpoints.newest() is None


def test_a_full_disk_is_told_with_the_next_checkpoint_and_costs_no_earlier_one(saved):
    run = saver(saved.parent)
    step(run, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # the largest file that this process may write
    try:
        run.save(2, {}, {})
        with pytest.raises(InputError, match="the checkpoint of step 2 cannot be written") as caught:
            run.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(caught.value)
    run.close()
    assert run.checkpoints.newest() == 1
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]

"""Checkpoints under damage, malice, a full disk and mistaken identity."""

import json
import pickle
import resource
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from orchestrator.errors import InputError
from orchestrator.pretrain.checkpoint import Checkpoints, load_state

IDENTITY = {"trial": {"model": {"depth": 2, "width": 8}, "topology": {"kind": "ancre"}}, "text": "abc"}


@pytest.fixture
def checkpoints(tmp_path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", IDENTITY)


def state(step: int) -> dict:
    return {"network": {"weight": torch.full((50,), float(step))}, "progress": {"step": step, "loss": 0.1}}


def steps(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_what_is_saved_is_what_is_loaded(checkpoints):
    assert checkpoints.newest() is None
    checkpoints.save(7, state(7))
    assert checkpoints.newest() == 7
    loaded = checkpoints.load(7)
    assert torch.equal(loaded["network"]["weight"], torch.full((50,), 7.0))
    assert loaded["progress"] == {"step": 7, "loss": 0.1}


def test_the_last_two_and_the_best_are_kept(checkpoints):
    for step, loss in ((10, 3.0), (20, 1.0), (30, 2.0), (40, 1.5), (50, 1.7)):
        checkpoints.save(step, state(step))
        checkpoints.note(step, loss)
    checkpoints.note(45, 0.5)  # evaluated, but not saved
    assert steps(checkpoints) == ["best.json", "step-00000020", "step-00000040", "step-00000050"]


def cut(folder):
    content = (folder / "state.pt").read_bytes()
    (folder / "state.pt").write_bytes(content[: len(content) // 2])


def flip(folder):
    content = bytearray((folder / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "state.pt").write_bytes(content)


DAMAGE = {
    "truncated": cut,
    "one bit": flip,
    "zero bytes": lambda folder: (folder / "state.pt").write_bytes(b""),
    "no state": lambda folder: (folder / "state.pt").unlink(),
    "no marker": lambda folder: (folder / "commit.json").unlink(),
    "empty marker": lambda folder: (folder / "commit.json").write_bytes(b""),
    "marker of nothing": lambda folder: (folder / "commit.json").write_text("[]"),
    "marker of another step": lambda folder: shutil.copytree(
        folder.with_name("step-00000010"), folder, dirs_exist_ok=True
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_leaves_the_one_before_it(checkpoints, damage, caplog):
    checkpoints.save(10, state(10))
    checkpoints.save(20, state(20))
    damage(checkpoints.folder / "step-00000020")
    assert checkpoints.newest() == 10
    assert "step-00000020 is damaged" in caplog.text
    checkpoints.save(20, state(20))  # the resumed run comes by again
    assert checkpoints.newest() == 20


def test_nothing_valid_is_a_new_start(checkpoints):
    checkpoints.save(10, state(10))
    cut(checkpoints.folder / "step-00000010")
    assert checkpoints.newest() is None


def test_what_a_killed_save_left_behind_is_removed(checkpoints):
    checkpoints.save(10, state(10))
    (checkpoints.folder / ".saving-x").mkdir()
    (checkpoints.folder / ".saving-x" / "state.pt").write_bytes(b"half")
    assert checkpoints.newest() == 10
    checkpoints.save(20, state(20))
    assert steps(checkpoints) == ["step-00000010", "step-00000020"]


def test_a_full_disk_is_one_line_and_costs_no_earlier_checkpoint(checkpoints):
    checkpoints.save(10, state(10))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # the largest file that this process may write
    try:
        with pytest.raises(InputError, match="the checkpoint of step 20 cannot be written") as caught:
            checkpoints.save(20, state(20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(caught.value)
    assert steps(checkpoints) == ["step-00000010"]
    assert checkpoints.newest() == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"depth": 3, "width": 8}}, "trial.model.depth is 2 there, 3 here"),
        ({"topology": {"kind": "cascaded"}}, 'trial.topology.kind is "ancre" there, "cascaded" here'),
        ({"optim": {"lr": 1}}, 'trial.optim is null there, {"lr": 1} here'),
    ],
)
def test_a_checkpoint_of_another_trial_is_refused(checkpoints, change, message):
    checkpoints.save(10, state(10))
    other = Checkpoints(checkpoints.folder, IDENTITY | {"trial": IDENTITY["trial"] | change})
    with pytest.raises(InputError) as caught:
        other.newest()
    assert str(caught.value) == f"{checkpoints.folder / 'step-00000010'} belongs to another trial: {message}"


class Payload:
    """Unpickled, it writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return exec, (f"open({str(self.file)!r}, 'w')",)


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(checkpoints, tmp_path):
    checkpoints.save(10, state(10))
    file = checkpoints.folder / "step-00000010" / "state.pt"
    torch.save({"network": Payload(tmp_path / "ran")}, file)
    commit = json.loads((file.parent / "commit.json").read_text())
    true = {"bytes": file.stat().st_size, "sha256": sha256(file.read_bytes()).hexdigest()}  # as an attacker would
    commit["files"] = {"state.pt": true}
    (file.parent / "commit.json").write_text(json.dumps(commit))
    assert checkpoints.newest() == 10
    with pytest.raises(InputError, match=r"state\.pt: refused: it holds more than tensors and numbers$"):
        checkpoints.load(10)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"hello world", pickle.dumps(1, 2)[:-1]])
def test_other_bytes_are_refused_in_one_line(tmp_path, content):
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"state\.pt: (refused|not written by torch\.save \(\w+\))") as caught:
        load_state(tmp_path / "state.pt")
    assert "\n" not in str(caught.value)


def of_trial(folder: Path, rate: float) -> tuple[Checkpoints, Checkpoints]:
    """The checkpoints of a trial as its population knows them, and as its workload does."""
    trial = {"optim": {"lr": rate}, "seed": 0}
    folder = folder / "checkpoints"
    return Checkpoints(folder, trial), Checkpoints(folder, {"trial": trial, "text": "a"})


def test_a_checkpoint_that_is_taken_over_is_the_only_one_and_of_its_new_trial(tmp_path):
    donor, donated = of_trial(tmp_path / "donor", 0.1)
    own, loaded = of_trial(tmp_path / "own", 0.2)
    for step in (10, 20):
        donated.save(step, state(step))
    for step in (10, 20):
        loaded.save(step, state(100 + step))
        loaded.note(step, 1.0)
    assert own.take_over(donor, 20)
    assert steps(own) == ["step-00000020"] and loaded.newest() == 20
    assert torch.equal(loaded.load(20)["network"]["weight"], torch.full((50,), 20.0))
    with pytest.raises(InputError, match=r"belongs to another trial: trial.optim.lr is 0.2 there, 0.1 here"):
        Checkpoints(own.folder, donated.identity).newest()
    assert donated.newest() == 20  # it keeps its own


def test_taking_over_again_changes_nothing_even_where_the_donor_is_further(tmp_path):
    donor, donated = of_trial(tmp_path / "donor", 0.1)
    own, loaded = of_trial(tmp_path / "own", 0.1)  # the same values: only the weights are another's
    donated.save(20, state(20))
    loaded.save(20, state(120))
    assert own.take_over(donor, 20)
    assert torch.equal(loaded.load(20)["network"]["weight"], torch.full((50,), 20.0))
    shutil.rmtree(donor.folder)
    assert own.take_over(donor, 20)
    loaded.save(30, state(30))
    shutil.rmtree(own.path(20))
    assert own.take_over(donor, 20) and loaded.newest() == 30


@pytest.mark.parametrize("harm", [cut, flip])
def test_damage_is_not_taken_over(tmp_path, harm):
    donor, donated = of_trial(tmp_path / "donor", 0.1)
    own, loaded = of_trial(tmp_path / "own", 0.2)
    donated.save(20, state(20))
    loaded.save(20, state(120))
    harm(donor.path(20))
    assert not donor.whole(20) and not own.take_over(donor, 20)
    assert torch.equal(loaded.load(20)["network"]["weight"], torch.full((50,), 120.0))

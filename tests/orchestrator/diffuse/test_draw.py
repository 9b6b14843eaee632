"""`ancre sample`: pictures of chosen classes from a checkpoint, and one line for what cannot be drawn."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from models.diffusion import linear
from models.sampling import sample
from orchestrator.cli import main
from orchestrator.images.base import to_uint8
from orchestrator.pretrain.sharded import read_network
from orchestrator.record.ledger import Ledger
from orchestrator.workloads.base import Place
from orchestrator.workloads.lnn import Spec as Linear

SIDE = 42  # pixels from one image to the next


def plan(home: Path, spec) -> Path:
    """A trial that was planned in the study "digits"; its folder."""
    folder = home / "studies" / "digits"
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(folder)
    recorded = spec.model_dump(mode="json")
    ledger.write("planned", trial=spec.id, cell=spec.cell, arm="a", axes={}, seed=0, spec=recorded, steps=1)
    ledger.close()
    return folder / "trials" / spec.id


@pytest.fixture(scope="module")
def trained(trial):
    return trial(train={"steps": 4, "checkpoint_every": 4})


@pytest.fixture(scope="module")
def home(tmp_path_factory, trial, trained, cache) -> Path:
    """A trial with a checkpoint, one without, and one of another workload."""
    home = tmp_path_factory.mktemp("home")
    list(trained.rows(Place(plan(home, trained), cache)))
    plan(home, trial())
    plan(home, Linear())
    return home


def test_the_picture_has_the_images_of_the_averaged_weights(home, trained, tmp_path):
    """Each image is that of its class and seed alone, in its row and column."""
    out = tmp_path / "deep" / "grid.png"
    arguments = ["--classes", "3,7", "--count", "4", "--steps", "5", "--cfg", "2", "--seed", "11", "--out", str(out)]
    assert main(["sample", trained.id, "--home", str(home), *arguments]) == 0
    network = trained.model.build(trained.topology)
    checkpoint = home / "studies" / "digits" / "trials" / trained.id / "checkpoints" / "step-00000004"
    read_network(checkpoint, network, "extra.ema")
    how = trained.evaluate.sampling.model_copy(update={"steps": 5, "cfg": 2.0})
    sheet = np.array(Image.open(io.BytesIO(out.read_bytes())))
    assert sheet.shape == (2 * SIDE - 2, 4 * SIDE - 2)
    for row, label in enumerate((3, 7)):
        for column in range(4):
            alone = sample(network, linear(), [label], [11 + column], how)[0, 0].numpy()
            shown = sheet[row * SIDE : row * SIDE + 40 : 5, column * SIDE : column * SIDE + 40 : 5]
            assert np.abs(shown.astype(int) - to_uint8(alone)).max() <= 1  # rounding differs with the batch


def test_without_options_it_draws_every_class_as_the_trial_was_judged(home, trained, capsys):
    assert main(["sample", trained.id[:8], "--home", str(home)]) == 0
    out = home / "samples" / f"{trained.id}.png"
    assert capsys.readouterr().out == f"{out}\n"
    assert Image.open(io.BytesIO(out.read_bytes())).size == (8 * SIDE - 2, 10 * SIDE - 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--classes", "3,10"], "--classes: class 10: this network knows the classes 0 to 9"),
        (["--out", "grid.jpg"], "--out grid.jpg: should be a file that ends in .png"),
        (["--out", "/"], "--out /: should be a file that ends in .png"),
        (["--out", "/dev/null/grid.png"], "--out /dev/null/grid.png: cannot be written: "),
        (["--steps", "0"], "argument --steps: should be a whole number from 1 to 1000, got '0'"),
        (["--cfg", "-1"], "argument --cfg: should be a number from 0 to 1000, got '-1'"),
        (["--cfg", "1e300"], "argument --cfg: should be a number from 0 to 1000, got '1e300'"),
        (["--cfg", "nan"], "argument --cfg: should be a number from 0 to 1000, got 'nan'"),
        (["--classes", "3,x"], "argument --classes: should be numbers of classes such as 3,7, got '3,x'"),
        (["--classes", ""], "argument --classes: should be numbers of classes such as 3,7, got ''"),
    ],
)
def test_a_wrong_option_is_one_line(arguments, said, home, trained, capsys):
    try:
        code = main(["sample", trained.id, "--home", str(home), *arguments])
    except SystemExit as stopped:  # argparse
        code = stopped.code
    assert code == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_picture_that_cannot_be_drawn_or_written_leaves_the_one_that_is_there(
    home, trained, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "grid.png"
    ask = ["sample", trained.id, "--home", str(home), "--steps", "2", "--out", str(out)]

    def fails(said: str) -> None:
        assert main(ask) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1

    with monkeypatch.context() as infinite:
        infinite.setattr("models.sampling.sample", lambda *_, **__: torch.full((80, 1, 8, 8), torch.inf))
        fails("ancre: what is drawn is not finite: at --cfg 1.5, or the trial's weights have diverged\n")
    assert not [*tmp_path.iterdir()]
    out.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # stands for a full disk
    try:
        fails(f"--out {out}: cannot be written: File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
    assert main(ask) == 0 and out.read_bytes().startswith(b"\x89PNG")


def test_a_trial_that_cannot_be_sampled_is_one_line(home, trial, capsys):
    for run, said in (
        ("zzz", "no trial begins with 'zzz'"),
        (trial().id, "has no checkpoint to sample; its train.checkpoint_every is 0"),
        (Linear().id, "is of workload 'lnn'; only dit can be sampled"),
    ):
        assert main(["sample", run, "--home", str(home)]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_a_damaged_checkpoint_is_no_checkpoint(home, trial, cache, capsys):
    other = trial(seed=5, train={"steps": 2, "checkpoint_every": 2})
    folder = plan(home, other)
    list(other.rows(Place(folder, cache)))
    (shard,) = (folder / "checkpoints" / "step-00000002").glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:-1])
    assert main(["sample", other.id, "--home", str(home)]) == 2
    assert "has no checkpoint to sample\n" in capsys.readouterr().err

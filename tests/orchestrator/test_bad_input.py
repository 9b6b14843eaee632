"""Every kind of bad input: one line that says where, which value, and what would be right; exit code 2; nothing lost.

A case is a study file with one change, a command, or a checkpoint that is not the trial's own.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from orchestrator import cli
from orchestrator.errors import InputError
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.study.spec import Study
from orchestrator.sweep.run import start
from orchestrator.workloads.base import Place
from orchestrator.workloads.lnn import Spec

from .local_ray import local_ray

STUDY = """name = "mine"
workload = "llm"
seeds = [0, 1]
[trial]
model = { width = 64, ffn_width = 96, depth = 2, heads = 4, vocab_size = 300 }
data = { kind = "files", path = "corpus" }
text.sequence = 16
topology.kind = "cascaded"
optim = { kind = "adamw", lr = 1e-3 }
train = { steps = 4, batch = 4 }
[axes]
"train.clip" = [0.0, 1.0]
"""
HUGE = "".join(
    f'"{axis}" = {{ center = 1e-3, factor = 1.01, count = 1000 }}\n' for axis in ("optim.lr", "train.warmup")
)
RANDOM = '[sampler]\nkind = "random"\ncells = 2\n[axes]\n"optim.lr" = '
NAMES = (
    "a name should have 1 to 100 letters, digits, '_', '-' and single '.', beginning with a letter, digit or '_', got"
)

# What is changed in the file, into what, and what the line has to say.
FILES = {
    "unknown key": ("steps = 4", "stepps = 4", "trial.train.stepps: no such key; did you mean 'steps'?"),
    "unknown table": ("[trial]", "[trail]", "trail: no such key; did you mean 'trial'?"),
    "unknown kind": ('"adamw"', '"adam"', "trial.optim: no optim of kind 'adam'; did you mean 'adamw'?"),
    "text for a number": ("steps = 4", 'steps = "four"', "trial.train.steps: should be a whole number, got 'four'"),
    "truth for a number": ("steps = 4", "steps = true", "trial.train.steps: should be a number, got True"),
    "duplicate key": ("[trial]", "seeds = [2]\n[trial]", "the same key twice: Cannot overwrite a value (at line 4"),
    "no TOML": ("[trial]", "[trial", "no TOML: Expected ']' at the end of a table declaration (at line 4"),
    "empty list": ("[0.0, 1.0]", "[]", 'axes."train.clip": should have at least one value, got an empty list'),
    "min > max": (
        "[axes]\n",
        RANDOM + "{ low = 1.0, high = 0.1 }\n",
        "should not be above high, got low 1.0, high 0.1",
    ),
    "log of 0": ("[axes]\n", RANDOM + "{ low = 0.0, high = 1.0, log = true }\n", "a log range should start above 0"),
    "NaN": ("1e-3", "nan", "trial.optim.lr: should be a finite number, got nan"),
    "infinite axis": ("[0.0, 1.0]", "[inf]", 'axes."train.clip": should hold finite numbers, got inf'),
    "depth 0": ("depth = 2", "depth = 0", "trial.model.depth: should be greater than or equal to 1, got 0"),
    "depth -1": ("depth = 2", "depth = -1", "trial.model.depth: should be greater than or equal to 1, got -1"),
    "heads": ("heads = 4", "heads = 5", "5 heads do not divide width 64"),
    "global batch": (
        "[axes]",
        "[resources]\nworkers = 3\n[axes]",
        "batch 4 is not a multiple of 3 workers; 2 would",
    ),
    "micro batch": ("batch = 4", "batch = 4, micro_batch = 3", "micro_batch 3 does not divide"),
    "seeds twice": ("[0, 1]", "[0, 0]", "seeds: should name each seed once, got 0 twice"),
    "negative seed": ("[0, 1]", "[-1]", "seeds: a seed should be a whole number from 0 to 2147483647, got -1"),
    "no seeds": ("[0, 1]", "[]", "seeds: should be 1 to 1000 seeds, got an empty list"),
    "unknown metric": ("seeds", 'metric = "val/perplexty"\nseeds', "did you mean 'val/perplexity'?"),
    "10^9 cells": ("[axes]\n", "[axes]\n" + HUGE, "axes: should give at most 1,000,000 configurations, got 2,000,000"),
    **{
        f"name {name[:12]!r}": ('"mine"', f'"{name}"', f"name: {NAMES}")
        for name in ("a/b", "a..b", "..", "a:b", "a=b", "a'b", r"a\"b", r"a\nb", "🙂", "x" * 300, "-a", "", " a", ".a")
    },
}


def one_line(said) -> str:
    assert said.out == ""
    assert said.err.startswith("ancre: ") and said.err.count("\n") == 1, said.err
    return said.err


@pytest.mark.parametrize("case", FILES)
def test_a_study_that_is_not_understood(case, tmp_path, capsys, monkeypatch):
    old, new, right = FILES[case]
    assert old in STUDY
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(STUDY.replace(old, new, 1))
    for command in ("plan", "start"):
        assert cli.main([command, "mine.toml", "--home", "home"]) == 2
        line = one_line(capsys.readouterr())
        assert line.startswith("ancre: mine.toml: ") and right in line
    assert not Path("home/studies/mine/ledger.jsonl").exists()


# --- commands, in a home with a study that went well and one that only diverged


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home: Path = tmp_path_factory.mktemp("bad") / "home"
    model, train = {"depth": 3, "width": 4, "rank": 2}, {"steps": 20, "log_every": 10}
    with local_ray(cpus=2), pytest.MonkeyPatch.context() as environment:
        environment.delenv("MLFLOW_TRACKING_URI", raising=False)
        for name, rate in (("good", 0.01), ("lost", 1e9)):
            start(Study(name=name, workload="lnn", trial={"model": model, "train": train, "optim.lr": rate}), home)
    return home


COMMANDS: Mapping[str, tuple[list[str], str]] = {
    "query text with quotes": (["query", "best", "x' OR '1'='1"], "no study \"x' OR '1'='1\" in the store"),
    "unknown metric": (["query", "best", "good", "--metric", "train/los"], "did you mean 'train/loss'?"),
    "only NaN": (["query", "best", "lost"], "no finished run has a finite train/loss to rank by (runs: 1 diverged)"),
    "unknown study": (["query", "best", "goood"], "did you mean 'good'?"),
    "no configuration": (["query", "best", "good", "--top", "0"], "top 0: ask for at least 1 configuration"),
    "no topology": (["query", "topology", "lost"], "recorded a learned topology"),
    "unknown cell": (["export", "zzz"], "no configuration begins with 'zzz'"),
    "another study of that name": (
        ["start", "demo", "--set", "name=good", "--seeds", "0"],
        "give the changed study a name",
    ),
    "data that is not there": (["start", "mine.toml"], "data.path: 'corpus' does not exist (looked from "),
    "data that is empty": (
        ["start", "mine.toml", "--set", "data.path=empty"],
        "data.path: empty: nothing to read",
    ),
    "more than the machine has": (
        ["start", "demo", "--set", "resources.cpus=4096"],
        "resources: a trial takes 1 x (4096",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_that_cannot_be_done(case, home, tmp_path, capsys, monkeypatch):
    words, right = COMMANDS[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Path("mine.toml").write_text(STUDY)
    Path("empty").mkdir()
    before = {path: path.read_bytes() for path in home.glob("studies/*/*.*")}
    assert cli.main([*words, "--home", str(home)]) == 2
    assert right in one_line(capsys.readouterr())
    assert {path: path.read_bytes() for path in before} == before


def test_an_empty_store(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert cli.main(["query", "best", "good", "--home", str(tmp_path)]) == 2
    assert "no study was recorded there yet" in one_line(capsys.readouterr())


# --- checkpoints


def trial(depth: int = 3, kind: str = "cascaded", **model: int) -> Spec:
    sizes = {"depth": depth, "width": 4, "rank": 2, **model}
    return Spec(model=sizes, topology={"kind": kind}, train={"steps": 4, "checkpoint_every": 2})


def another(**what: int | str) -> Callable[[Path], object]:
    """The checkpoint of another trial in the place of this one's."""

    def put(folder: Path) -> None:
        shutil.rmtree(folder)
        list(trial(**what).rows(Place(folder.parent, folder.parent)))

    return put


class Command:
    """What a malicious pickle would do."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return __import__("os").mkdir, ("harm",)


def malicious(folder: Path) -> None:
    """As whoever can write to the folder would do it: with a commit that fits."""
    checkpoints = Checkpoints(folder, trial().model_dump(mode="json"))
    scratch = checkpoints.begin(4)
    torch.save({"network": Command()}, scratch / "state.pt")
    checkpoints.commit(4, scratch)


CHECKPOINTS = {
    "another depth": (another(depth=4), "belongs to another trial: model.depth is 4 there, 3 here"),
    "another model": (another(width=6), "belongs to another trial: model.width is 6 there, 4 here"),
    "another topology": (another(kind="ancre"), "belongs to another trial: topology"),
    "a malicious pickle": (malicious, "state.pt: refused: it holds more than tensors and numbers"),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_a_checkpoint_that_is_not_the_trials_own(case, tmp_path, monkeypatch):
    damage, right = CHECKPOINTS[case]
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path, tmp_path)
    list(trial().rows(place))
    damage(tmp_path / "checkpoints")
    with pytest.raises(InputError) as caught:
        list(trial().rows(place))
    assert right in str(caught.value) and "\n" not in str(caught.value)
    assert not Path("harm").exists()

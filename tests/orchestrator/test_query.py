"""`ancre query` as a whole command: conditions, orders, columns, formats, and answers about what is not there."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from analysis import names
from orchestrator import cli

AXES = {("cascaded", 1e-3): 16.0, ("cascaded", 3e-3): 15.0, ("ancre", 1e-3): 14.0, ("ancre", 3e-3): 12.0}


def tags(arm: str, rate: float, seed: int, state: str) -> dict[str, str]:
    cell = f"{arm[:2]}{rate:g}"
    spec = {"model": {"depth": 4}, "topology": {"kind": arm}, "optim": {"kind": "adamw", "lr": rate}, "seed": seed}
    return {
        names.ROLE: names.TRIAL,
        names.TRIAL_ID: f"{cell}-s{seed}",
        names.CELL: cell,
        names.ARM: arm,
        names.SEED: str(seed),
        names.STATE: state,
        names.CAUSE: "out of memory" if state == names.FAILED else "",
        names.AXES: json.dumps({"optim.lr": rate}),
        names.SPEC: json.dumps(spec),
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose store has a study of two arms, two rates and two seeds, one of which failed; and an empty one."""
    import warnings

    from mlflow.tracking import MlflowClient

    home = tmp_path_factory.mktemp("home")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The ``noload`` loader strategy")
        client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    arms = {arm: {"configurations": 3, "axes": {"optim.lr": [1e-3, 3e-3, 9e-3]}} for arm in ("cascaded", "ancre")}
    held = {names.ROLE: names.STUDY, names.METRIC: "val/loss", names.MODE: "min", names.PLANNED_SEEDS: "[0, 1]"}
    for name in ("s", "empty"):
        experiment = client.create_experiment(name, artifact_location=str(home / "artifacts"))
        client.create_run(experiment, tags=held | {names.ARMS: json.dumps(arms)})
        for (arm, rate), level in AXES.items() if name == "s" else ():
            for seed in (0, 1):
                failed = (arm, rate, seed) == ("ancre", 1e-3, 1)
                state = names.FAILED if failed else names.FINISHED
                run = client.create_run(experiment, tags=tags(arm, rate, seed, state)).info.run_id
                client.log_metric(run, "val/loss", level + seed)
    return home


@pytest.fixture
def ask(store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The rows of `ancre query`, as JSON unless a format is asked for; of bad input, the line."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("ANCRE_HOME", str(store))

    def asked(what: str, study: str, *words: str) -> Any:
        format = () if {"--format", "--out"} & set(words) else ("--format", "json")
        code = cli.main(("query", what, study, *words, *format))
        said = capsys.readouterr()
        if code:
            assert (code, said.out, said.err.count("\n")) == (2, "", 1)
            return said.err
        return json.loads(said.out) if format else said.out

    return asked


def test_conditions_choose_cells_before_the_best_ones(ask: Callable[..., Any]) -> None:
    (best,) = ask("best", "s", "--where", "topology.kind = 'cascaded'", "--top", "1")
    assert (best["arm"], best["mean"]) == ("cascaded", 15.5)
    assert [row["cell"] for row in ask("cells", "s", "--where", "lr<0.002 and status='complete'")] == ["ca0.001"]
    assert [row["trial"] for row in ask("runs", "s", "--where", "val/loss < 14 or state != 'finished'")] == [
        "an0.001-s1",
        "an0.003-s0",
        "an0.003-s1",
    ]
    assert ask("best", "s", "--where", "lr > 1") == []


def test_orders_and_columns(ask: Callable[..., Any]) -> None:
    found = ask("cells", "s", "--sort", "-lr,mean", "--columns", "arm,lr,mean,missing")
    assert [list(row.values()) for row in found] == [
        ["ancre", 3e-3, 12.5, 0],
        ["cascaded", 3e-3, 15.5, 0],
        ["ancre", 1e-3, 14.0, 1],
        ["cascaded", 1e-3, 16.5, 0],
    ]
    assert list(found[0]) == ["arm", "optim.lr", "mean", "missing"]
    table = ask("runs", "s", "--sort", "-seed", "--columns", "trial,seed", "--format", "table")
    assert table.split()[0:2] == ["trial", "seed"] and table.index("-s1") < table.index("-s0")
    curves = ask("curves", "s", "--sort", "-mean", "--columns", "arm,mean")
    assert [row["arm"] for row in curves] == ["cascaded", "ancre"]


def test_files_in_every_format(ask: Callable[..., Any], tmp_path: Path) -> None:
    ask("runs", "s", "--format", "parquet", "--out", str(tmp_path / "a.parquet"))
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.num_rows == 8
    assert table.column("val/loss").to_pylist()[:2] == [16.0, 17.0]
    assert {str(table.schema.field(name).type) for name in ("seed", "model.depth")} == {"int64"}
    ask("cells", "s", "--columns", "arm,lr", "--out", str(tmp_path / "b.parquet"))
    assert parquet.read_table(tmp_path / "b.parquet").column_names == ["arm", "optim.lr"]
    assert ask("cells", "s", "--format", "csv", "--out", str(tmp_path / "c.csv")) == ""
    rows = list(csv.DictReader(io.StringIO((tmp_path / "c.csv").read_text())))
    assert [row["arm"] for row in rows] == ["ancre", "cascaded", "cascaded", "ancre"]
    assert "cannot be written" in ask("cells", "s", "--out", str(tmp_path / "none" / "c"))


def test_what_is_missing_and_the_command_that_goes_on(ask: Callable[..., Any]) -> None:
    lacks, *never = ask("missing", "s")
    assert (lacks["cell"], lacks["missing"], lacks["command"]) == ("an0.001", [1], "ancre resume s")
    assert lacks["reason"] == "seed 1 failed: out of memory"
    assert [(row["arm"], row["reason"]) for row in never] == [
        ("cascaded", "1 configuration not started"),
        ("ancre", "1 configuration not started"),
    ]
    assert ask("missing", "s", "--where", "arm = 'cascaded'") == []
    assert [row["reason"] for row in ask("missing", "empty")] == ["3 configurations not started"] * 2


def test_a_home_elsewhere_is_named(ask: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    home = shutil.copytree(store, tmp_path / "other home")
    assert ask("missing", "s", "--home", str(home))[0]["command"] == f"ancre resume --home '{home}' s"
    cli.build_parser().parse_args(["resume", "--home", str(home), "s"])


def test_best_says_what_lies_at_an_end(ask: Callable[..., Any]) -> None:
    rows = ask("edges", "s", "--where", "lr < 0.002")
    assert [row["next"] for row in rows] == ['"optim.lr" = [0.000111, 0.000333, 0.001]'] * 2
    assert ask("edges", "s") == []
    assert "lr: lowest tried" in " ".join(ask("best", "s", "--where", "lr < 0.002", "--format", "table").split())
    assert ask("best", "s", "--where", "lr < 0.002")[0]["edges"][0]["side"] == "lowest"


def test_shares_that_diverged_and_what_matters(ask: Callable[..., Any]) -> None:
    assert [row["trials"] for row in ask("diverged", "s", "--where", "arm='ancre'")] == [4, 2, 2]
    assert {row["importance"] for row in ask("importance", "s")} == {None}
    assert "1 of the 4 configurations" not in str(ask("importance", "s"))


@pytest.mark.parametrize("what", ["missing", "diverged"])
def test_an_empty_study_has_nothing_but_what_is_planned(ask: Callable[..., Any], what: str) -> None:
    assert ask(what, "empty", "--where", "arm = 'x'") == []


@pytest.mark.parametrize("what", ["best", "cells", "runs", "edges", "importance", "topology", "curves", "depths"])
def test_other_questions_of_an_empty_study_are_one_line(ask: Callable[..., Any], what: str) -> None:
    assert "no run has logged a metric yet" in ask(what, "empty")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--where", "dept = 3"), "cells have no field 'dept'; did you mean 'depth'?"),
        (("--where", "kind = 'ancre'"), "field 'kind' may be optim.kind, topology.kind: say which"),
        (("--where", "depth = 'x'; DROP TABLE runs"), "at character 12, but has '; DROP TABLE runs'"),
        (("--where", "(" * 9000), "nested deeper than"),
        (("--sort", "men"), "have no field 'men'; did you mean 'mean'?"),
        (("--columns", "arm,nothing at all"), "have no field 'nothing at all'"),
    ],
)
def test_bad_input_is_one_line(ask: Callable[..., Any], words: tuple[str, ...], said: str) -> None:
    assert said in ask("cells", "s", *words)

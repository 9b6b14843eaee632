"""The command line: one line for bad input, exit code 2, nothing started; answers in three formats."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.errors import InputError
from orchestrator.study.study_file import find

# What is asked, and what the one line on stderr has to say.
BAD = {
    ("plan", "no_such_study"): "no_such_study: no such file",
    ("plan", "demoo"): "did you mean 'demo'?",
    ("plan", "demo", "--set", "optim.lrr=1"): "optim.lrr",
    ("plan", "demo", "--set", "train.steps=-1"): "train.steps",
    ("plan", "demo", "--set", "topology.kind=anchre"): "did you mean 'ancre'?",
    ("plan", "demo", "--seeds", "2..0"): "2..0",
    ("plan", "rl_temperature", "--set", "actor_topology={kind='mhc'}"): "those of 'mhc' are not",
    ("start", "demo", "--address", "127.0.0.1:1"): "--address 127.0.0.1:1: no Ray cluster answers",
    ("plan", "demo", "--device", "h10"): "no device 'h10'; did you mean 'h100'?",
    ("start", "demo", "no_such_study"): "no_such_study: no such file",
    ("start", "a" * 300): "is no path: File name too long",
    ("resume", "demo"): "no study 'demo' was started",
    ("status", "demo"): "no study 'demo'",
    ("query", "best", "demo"): "no study was recorded there yet",
    ("query", "best", "x' OR 1=1 --"): "no study was recorded there yet",
    ("query", "runs", "demo", "--format", "parquet"): "--format parquet needs --out FILE",
    ("report", "demo"): "no study was recorded there yet",
    ("export", "abc"): "no study was recorded there yet",
    ("kinds", "topologies"): "did you mean 'topology'?",
}


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("ANCRE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_bad_input_gives_one_line_and_starts_nothing(
    words: tuple[str, ...], empty_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("ancre: ") and said.err.count("\n") == 1
    assert BAD[words] in said.err
    assert not empty_home.exists()


def test_what_this_machine_can_never_hold_is_refused(empty_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(("start", "demo", "--set", "model.width=4000000")) == 2
    assert "demo.toml: a trial of cascaded needs" in capsys.readouterr().err
    assert not (empty_home / "studies" / "demo" / "ledger.jsonl").exists()


def test_a_study_that_was_started_before_is_found_by_its_name(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = empty_home / "studies" / "mine" / "study.toml"
    kept.parent.mkdir(parents=True)
    kept.write_text("")
    assert find("mine", empty_home) == kept
    for name in ("mine", "mine.toml"):
        with pytest.raises(InputError, match="no such file"):
            find(name, None if name == "mine" else empty_home)
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        find("mine", empty_home)


@pytest.mark.parametrize("words", [(), ("nothing",), ("query", "worst", "demo"), ("plan",), ("plan", "demo", "--fast")])
def test_unknown_words_give_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("words", [("kinds",), ("plan", "demo"), ("status",), ("doctor",)])
def test_reading_commands_print_the_same_rows_as_json_and_csv(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = {}
    for format in ("table", "json", "csv"):
        assert cli.main((*words, "--format", format)) == 0
        printed[format] = capsys.readouterr().out
    rows = json.loads(printed["json"])
    assert [list(row) for row in csv.DictReader(io.StringIO(printed["csv"]))] == [list(row) for row in rows]
    assert printed["table"].strip() or not rows


@pytest.mark.parametrize("words", [("kinds",), ("doctor",), ("plan", "demo"), ("plan", "paper_table2")])
def test_tables_fit_in_80_columns(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        *("kinds", "plan", "start", "resume", "launch", "stop", "logs"),
        *("status", "query", "report", "export", "data", "doctor"),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main((command, "--help"))
        assert stopped.value.code == 0
        assert "usage: ancre " + command in capsys.readouterr().out


def test_help_and_plan_import_neither_torch_nor_ray_nor_mlflow() -> None:
    """Each takes more than a second to import; a user waits for it at every command."""
    watched = "{'torch', 'ray', 'mlflow', 'pandas', 'scipy', 'matplotlib'}"
    code = f"import sys; from orchestrator.cli import main; main(['plan', 'demo']); print({watched} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m orchestrator kinds --format csv | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

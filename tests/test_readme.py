"""What the README shows works as shown."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli import build_parser
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [body for name, body in fenced if name == language]


def commands() -> list[list[str]]:
    lines = [line.partition("  #")[0] for block in blocks("") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("ancre ")]


def test_it_opens_with_the_two_commands() -> None:
    first = blocks("")[0].splitlines()
    assert [line.partition("  ")[0] for line in first] == ["make demo", "make test"]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_one_the_command_line_takes(words: list[str]) -> None:
    build_parser().parse_args(words)


def test_it_shows_the_commands_of_every_job() -> None:
    assert {words[0] for words in commands()} >= {"plan", "start", "query", "export", "report"}


def test_the_study_plans() -> None:
    (text,) = blocks("toml")
    made = plan(Study.parse(text))
    assert {side.arm: side.cells for side in made.sides} == {"cascaded": 3, "drop": 9, "keep": 9}


def test_the_wiring_runs() -> None:
    done = subprocess.run([sys.executable, "-c", blocks("python")[-1]], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torch.Size([8, 10, 64]) tensor([[0.0000, 1.0000, 0.5000, 0.3333")


@pytest.mark.timeout(900)
def test_make_demo_prints_the_answers_and_writes_the_report(tmp_path: Path) -> None:
    """`make demo` itself, with one seed and few steps."""
    home = tmp_path / "home"
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    done = subprocess.run(
        ["make", "--no-print-directory", "demo", "FLAGS=--seeds 0..1 --set train.steps=4"],
        cwd=ROOT,
        env=environment | {"ANCRE_HOME": str(home), "COLUMNS": "80", "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = Path(done.stdout.splitlines()[-1])
    assert "95% interval" in done.stdout and "strongest (chance) p" in done.stdout
    assert "ancre_drop" in done.stderr and "demo_linear: By train/loss, best first:" in " ".join(done.stderr.split())
    assert report.suffix == ".html" and "http" not in re.findall(r'(?:src|href)="(\w+)', report.read_text())


@pytest.mark.timeout(300)
def test_from_python(tmp_path: Path) -> None:
    """The README's lines, at four steps."""
    code = blocks("python")[0].replace("train.steps=20", "train.steps=4").replace("0..1", "0")
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "optim.lr" in done.stdout and "Summary(n=1, mean=" in done.stdout

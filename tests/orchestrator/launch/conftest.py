from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.launch import job
from orchestrator.study.spec import Study

NAME = "it_s"
ODD = 'the user\'s "own" $HOME; `folder`'  # what a careless script would take apart


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with an odd name, and a study in a file."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))  # for the tests' own workload
    monkeypatch.chdir(tmp_path)
    home = tmp_path / ODD
    home.mkdir()
    return home


@pytest.fixture
def study_file(tmp_path):
    return write_study(tmp_path)


def write_study(folder, **train):
    study = Study(
        name=NAME,
        workload="tests.orchestrator.sweep_workload",
        seeds=[0, 1],
        axes={"optim.lr": [0.1, 0.2]},
        trial={"train": {"steps": 4, **train}},
    )
    path = folder / "study.toml"
    path.write_text(study.to_toml())
    return path


@pytest.fixture
def launch(home, capsys):
    """`ancre launch` with these words; the job's folder and what was printed."""

    def launch(*words, code=0):
        assert main(["launch", *map(str, words), "--home", str(home)]) == code, capsys.readouterr()
        said = capsys.readouterr()
        check_no_secret(home, said.out + said.err)
        return said.out if code == 0 else said.err

    return launch


def check_no_secret(home, said):
    """A token is in its file alone, which nobody else may read."""
    for token in home.glob(f"launches/*/{job.TOKEN_FILE}"):
        secret = token.read_bytes()
        assert token.stat().st_mode & 0o777 == 0o600 and len(secret) >= 32
        assert secret.decode() not in said
        others = [file for file in token.parent.rglob("*") if file.is_file() and file != token]
        assert others and not [file for file in others if secret in file.read_bytes()]

"""Text to prepare, and the command as a user gives it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from c4_like import EACH, FILES, document

from orchestrator import cli


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """Files as C4's: JSON lines of training and of held-out documents."""
    folder = tmp_path_factory.mktemp("source")
    for side, files in (("train", FILES), ("validation", 1)):
        for file in range(files):
            lines = (json.dumps({"text": document(side, file, n), "url": "x"}) for n in range(EACH))
            name = f"c4-{side}.{file:05d}-of-{files:05d}.json.gz"
            (folder / name).write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    return folder


@pytest.fixture(scope="session")
def tokenizer(source, tmp_path_factory) -> Path:
    """A byte-level BPE of the source."""
    out = tmp_path_factory.mktemp("tokenizer")
    words = (str(source), "--tokenizer", "bpe", "--vocab-size", "400", "--out", str(out), "--val-fraction", "0.1")
    assert cli.main(("data", "prepare", *words, "--workers", "1")) == 0
    return out / "tokenizer.json"


@pytest.fixture(autouse=True)
def batches(monkeypatch) -> None:
    """So small that a file is many."""
    monkeypatch.setattr("orchestrator.prepare.run.BATCH", 1000)


@pytest.fixture(scope="session")
def words(source, tokenizer) -> Callable[..., list[str]]:
    """The command's words for the source into a folder; shards of 1,500 tokens, held-out text of its own."""

    def make(out: Path, *more: str) -> list[str]:
        files = [str(source / f"c4-{side}.*.json.gz") for side in ("train", "validation")]
        fixed = ["--val", files[1], "--tokenizer", str(tokenizer), "--out", str(out), "--shard-tokens", "1500"]
        return ["data", "prepare", files[0], *fixed, *(more or ("--workers", "1"))]

    return make


@pytest.fixture
def refused(capsys) -> Callable[..., str]:
    """What the command says of bad input, in its one line."""

    def run(*words: str) -> str:
        capsys.readouterr()
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("ancre: ") and said.count("\n") == 1
        return said

    return run

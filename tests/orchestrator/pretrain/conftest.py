"""A corpus and a decoder so small that a step takes milliseconds."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.workloads.base import Place, Row
from orchestrator.workloads.llm import Spec

WORDS = ["a", "state", "leaves", "one", "block", "and", "every", "later", "step", "weighs", "it", "anew"]


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def text_file(tmp_path_factory) -> Path:
    """Sixty documents of 2 to 12 words: 8 to 9 batches of the tiny trial are a pass over them."""
    choose = random.Random(0)
    documents = (" ".join(choose.choices(WORDS, k=choose.randint(2, 12))) for _ in range(60))
    file = tmp_path_factory.mktemp("text") / "corpus.jsonl"
    file.write_text("".join(f"{json.dumps({'text': document})}\n" for document in documents))
    return file


@pytest.fixture(scope="session")
def trial(text_file) -> Callable[..., Spec]:
    """A tiny trial; keyword arguments override single fields of a section."""

    def make(seed: int = 0, topology: dict | None = None, optim: dict | None = None, **sections: dict) -> Spec:
        values = {
            "model": {"width": 16, "ffn_width": 24, "depth": 2, "heads": 2, "vocab_size": 280},
            "text": {"sequence": 16, "val_fraction": 0.2},
            "train": {"steps": 10, "batch": 6, "log_every": 1},
        }
        return Spec(
            **{name: section | sections.get(name, {}) for name, section in values.items()},
            topology=topology or {"kind": "ancre"},
            optim=optim or {"kind": "adamw", "lr": 0.01},
            data={"kind": "files", "path": str(text_file)},
            seed=seed,
        )

    return make


@pytest.fixture
def run(tmp_path, cache) -> Callable[[Spec], Iterator[Row]]:
    """The rows of a trial; a folder of another name is another run."""

    def start(trial: Spec, folder: str = "trial") -> Iterator[Row]:
        return trial.rows(Place(tmp_path / folder, cache))

    return start


@pytest.fixture(scope="session")
def steady() -> Callable[[Row], tuple]:
    """What of a row must not depend on the machine: all but the speed."""

    def strip(row: Row) -> tuple:
        metrics = {name: value for name, value in row.metrics.items() if name != "train/tokens_per_second"}
        return row.step, metrics, row.topology

    return strip

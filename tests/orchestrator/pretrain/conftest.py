"""A corpus and a decoder so small that a step takes milliseconds."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis import names
from orchestrator.workloads.base import Place, Row
from orchestrator.workloads.llm import Spec


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


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
    """What of a row must not depend on the machine: all but speed and memory."""

    def machine(name: str) -> bool:
        return name == names.TOKENS_PER_S or name.startswith("memory/")

    def strip(row: Row) -> tuple:
        metrics = {name: value for name, value in row.metrics.items() if not machine(name)}
        return row.step, metrics, row.topology

    return strip

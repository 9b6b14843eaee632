"""A diffusion transformer so small that a step takes milliseconds, on the digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis import names
from orchestrator.workloads.base import Place, Row
from orchestrator.workloads.dit import Spec


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def trial() -> Callable[..., Spec]:
    """A tiny trial; keyword arguments override single fields of a section."""

    def make(seed: int = 0, topology: dict[str, Any] | None = None, **sections: dict[str, Any]) -> Spec:
        values: dict[str, dict[str, Any]] = {
            "model": {
                "width": 16,
                "depth": 2,
                "heads": 2,
                "patch": 4,
                "image_size": 8,
                "channels": 1,
                "num_classes": 10,
            },
            "optim": {"kind": "adamw", "lr": 0.01},
            "train": {"steps": 8, "batch": 7, "log_every": 2, "ema": 0.5},
            "evaluate": {
                "samples": 24,
                "sampling": {"steps": 3, "cfg": 1.5},
                "features": {"kind": "digits"},
                "batch": 8,
            },
        }
        return Spec.model_validate(
            {name: section | sections.get(name, {}) for name, section in values.items()}
            | {"topology": topology or {"kind": "ancre"}, "images": sections.get("images", {"kind": "digits"})}
            | {"seed": seed}
        )

    return make


@pytest.fixture
def run(tmp_path: Path, cache: Path) -> Callable[..., Iterator[Row]]:
    """The rows of a trial; a folder of another name is another run."""

    def start(trial: Spec, folder: str = "trial") -> Iterator[Row]:
        return trial.rows(Place(tmp_path / folder, cache))

    return start


@pytest.fixture(scope="session")
def steady() -> Callable[[Mapping[str, float]], dict[str, float]]:
    """What of a row's metrics must not depend on the machine: all but speed and memory."""

    def machine(name: str) -> bool:
        return name == names.IMAGES_PER_S or name.startswith(("memory/", "time/"))

    return lambda metrics: {name: value for name, value in metrics.items() if not machine(name)}

"""One Ray for all runs of a file, and a trial that takes a second."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.workloads.base import Place
from orchestrator.workloads.crl import Spec
from tests.orchestrator.local_ray import local_ray

SMALL: dict[str, Any] = {
    "env": {"kind": "point", "layout": "open", "episode_length": 20},
    "model": {"num_blocks": 2, "width": 16},
    "topology": {"kind": "ancre"},
    "agent": {"repr_dim": 8},
    "train": {
        "env_steps": 8 * 10 * (3 + 6),
        "num_envs": 8,
        "unroll": 10,
        "gradient_steps": 4,
        "batch": 16,
        "slots": 60,
        "prefill": 30,
        "window": 20,
        "eval_envs": 6,
        "eval_every": 240,
        "checkpoint_every": 80,
        "save_buffer": True,
    },
}


@pytest.fixture(scope="module")
def ray_here():
    with local_ray(cpus=6):
        yield


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "trial", tmp_path / "cache")


def small(**sections: dict[str, Any]) -> Spec:
    return Spec.model_validate({**SMALL, **{name: {**SMALL.get(name, {}), **part} for name, part in sections.items()}})

"""One Ray for all runs of a file, and a trial that takes a second."""

import logging
from pathlib import Path
from typing import Any

import pytest

from orchestrator.sweep import cluster
from orchestrator.workloads.base import Place
from orchestrator.workloads.crl import Spec

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
    cluster.configure()
    import ray

    ray.init(
        address="local",
        num_cpus=6,
        include_dashboard=False,
        object_store_memory=cluster.OBJECT_STORE,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield
    ray.shutdown()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "trial", tmp_path / "cache")


def small(**sections: dict[str, Any]) -> Spec:
    return Spec.model_validate({**SMALL, **{name: {**SMALL.get(name, {}), **part} for name, part in sections.items()}})

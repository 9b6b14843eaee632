"""What tests share: environments, each compiled once a session, and a small corpus."""

import os

# Half the time of compiling physics goes into optimisations that a few steps do not repay.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from envs.functional import Compiled, JaxBatch
from envs.vector import GoalVectorEnv
from orchestrator import kinds

settings.register_profile("untimed", deadline=None)  # a busy machine fails no test
settings.load_profile("untimed")

NUM_ENVS = 32
WORDS = ["a", "state", "leaves", "one", "block", "and", "every", "later", "step", "weighs", "it", "anew"]
TRACES: Counter[tuple[str, str]] = Counter()  # by kind and method


class Running:
    """N environments of a kind, with episodes of 4 steps."""

    def __init__(self, kind: str) -> None:
        self.spec: Any = kinds.find("env", kind)(episode_length=4)
        self.envs = GoalVectorEnv(self.spec, NUM_ENVS)

    def reset(self, seed: int = 0) -> np.ndarray:
        return self.envs.reset(seed=seed)[0]

    def after(self, *actions: float) -> np.ndarray:
        """Observations after a reset and steps in which every entry of the action is the same."""
        self.reset()
        for action in actions:
            obs, *_ = self.envs.step(np.full(self.envs.action_space.shape, action, np.float32))
        return obs

    @property
    def physics(self) -> Any:
        assert isinstance(self.envs.batch, Compiled) and self.envs.batch.state is not None
        return self.envs.batch.state.physics


@pytest.fixture(scope="session")
def running() -> Iterator[Callable[[str], Running]]:
    """Starts the environments of a kind, or hands back those that run."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("reset", "step"):
            patch.setattr(JaxBatch, name, _counted(name, getattr(JaxBatch, name)))
        yield cache(Running)


@pytest.fixture
def traces() -> Counter[tuple[str, str]]:
    return TRACES


def _counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: JaxBatch, *arguments: Any) -> Any:
        TRACES[self.spec.kind, name] += 1
        return method(self, *arguments)

    return counted


@pytest.fixture(scope="session")
def text_file(tmp_path_factory) -> Path:
    """Sixty documents of 2 to 12 words: 8 to 9 batches of the tiny trial are a pass over them."""
    choose = random.Random(0)
    documents = (" ".join(choose.choices(WORDS, k=choose.randint(2, 12))) for _ in range(60))
    file = tmp_path_factory.mktemp("text") / "corpus.jsonl"
    file.write_text("".join(f"{json.dumps({'text': document})}\n" for document in documents))
    return file

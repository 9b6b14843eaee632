"""Where experience comes from: N environments that follow the actor, and fresh ones in which it is judged.

A row is what the ring keeps of one step: the state before it, the action, the episode's number, and 1, or 0 where the
step broke the environment. Batches that live in jax run as one compiled scan (`rollout_jax.py`), those in numpy as a
loop (`rollout_host.py`).
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from analysis import names
from envs.base import GoalEnvSpec
from models.resnet import Actor
from models.resnet_spec import ResnetSpec

Array = NDArray[np.generic]


class Outcome(NamedTuple):
    """What became of N evaluation environments up to the end of their first episode."""

    near: Array  # (3, N) int32: steps within the radius, the papers' time at goal, within the looser, the tighter one
    final_distance: Array  # (N,) float32: of the achieved goal from the goal after the last step


class Rollout(ABC):
    """N environments in training. Holds the actor that it follows; its weights may change between calls."""

    @abstractmethod
    def collect(self, unroll: int) -> tuple[Tensor, int]:
        """Take `unroll` steps with sampled actions.

        Returns:
            rows (unroll, N, S + A + 2) float32, valid until the next call; how many environments broke.
        """

    @abstractmethod
    def evaluate(self, seed: int, num_envs: int) -> Outcome:
        """One episode of each of `num_envs` fresh environments, with the mean action."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """All that the coming rows depend on, the actor excepted."""

    @abstractmethod
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on exactly where `state` was taken."""


def build(env: GoalEnvSpec, model: ResnetSpec, actor: Actor, num_envs: int, seed: int) -> Rollout:
    """The rollout of `num_envs` environments.

    Raises:
        ValueError: what the environment needs is not there, in one line.
    """
    from envs.host import HostBatch

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # read by jax once: or it takes most of a GPU
    batch = env.build(num_envs)
    if isinstance(batch, HostBatch):
        from orchestrator.crl.rollout_host import HostRollout

        return HostRollout(batch, actor, seed)
    from envs.functional import JaxBatch
    from orchestrator.crl.rollout_jax import JaxRollout

    if not isinstance(batch, JaxBatch):
        raise TypeError(f"env {env.kind!r}: build should give a HostBatch or a JaxBatch, got {batch!r}")
    return JaxRollout(batch, model, actor, seed)


def check_width(env: GoalEnvSpec, width: int) -> None:
    """Raise ValueError where observations are not as wide as the contract says."""
    contract = env.contract
    if width != contract.observation_size:
        raise ValueError(
            f"env {env.kind!r}: observations have {width} numbers; its contract says {contract.state_size} of "
            f"the state and {contract.goal_size} of the goal"
        )


def summary(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The metrics of an evaluation that several runners shared."""
    (near, easy, hard), distance = (np.concatenate(parts, -1) for parts in zip(*outcomes, strict=True))
    known = distance[np.isfinite(distance)]  # an environment that was broken from its start has none
    return {
        names.EVAL_TIME_AT_GOAL: float(near.mean()),
        names.EVAL_SUCCESS_ANY: float((near > 0).mean()),
        names.EVAL_SUCCESS_EASY: float(easy.mean()),
        names.EVAL_SUCCESS_HARD: float(hard.mean()),
        names.EVAL_FINAL_DISTANCE: float(known.mean()) if len(known) else math.nan,
    }

"""RLlib's environment runner: what it samples is a block of rows, never a list of episodes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import ray
import torch
from gymnasium.vector.utils import batch_space
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from torch import Tensor

from envs.base import Contract
from orchestrator.crl import rollout
from orchestrator.crl.module import Setup
from orchestrator.crl.rollout import Outcome, Rollout
from orchestrator.crl.seeds import Stream, seed_of


class Sample(NamedTuple):
    """What one runner brings of a training step."""

    rows: Tensor  # (T, N, F)
    broken: int  # environments that were put back
    seconds: float  # of physics and policy


class CRLRunner(EnvRunner, Checkpointable):  # type: ignore[misc]
    """The environments of one of max(1, train.env_runners) processes: an equal share of them all."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=ray.get(config) if isinstance(config, ray.ObjectRef) else config, **kwargs)
        self.plan: Setup = self.config.plan
        self.index = max(0, (self.worker_index or 0) - 1)  # RLlib counts remote runners from 1, and calls a local one 0
        torch.set_num_threads(self.plan.threads)
        self.make_module()
        self.make_env()

    def make_module(self) -> None:
        spec = self.config.get_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module = spec.build().to("cuda" if torch.cuda.is_available() else "cpu")

    def make_env(self) -> None:
        plan = self.plan
        self.env: Rollout = rollout.build(
            plan.env,
            plan.model,
            self.module.agent.actor,
            plan.train.num_envs // max(1, plan.train.env_runners),
            seed_of(plan.seed, Stream.ROLLOUT, self.index),
        )

    def assert_healthy(self) -> None:
        assert self.env

    def get_spaces(self) -> dict[str, tuple[gym.Space[Any], gym.Space[Any]]]:
        single = spaces(self.plan.env.contract)
        batched = batch_space(single[0], self.plan.train.num_envs), batch_space(single[1], self.plan.train.num_envs)
        return {INPUT_ENV_SPACES: batched, INPUT_ENV_SINGLE_SPACES: single, DEFAULT_MODULE_ID: single}

    def sample(self, **kwargs: Any) -> Sample:
        """One unroll of this runner's environments with sampled actions."""
        started = time.perf_counter()
        rows, broken = self.env.collect(self.plan.train.unroll)
        return Sample(rows, broken, time.perf_counter() - started)

    def evaluate(self, step: int) -> Outcome:
        """One episode in each of this runner's share of fresh environments, which `step` determines."""
        runners = max(1, self.plan.train.env_runners)
        count = len(range(self.index, self.plan.train.eval_envs, runners))
        return self.env.evaluate(seed_of(self.plan.seed, Stream.EVALUATION, step, self.index), count)

    def run_state(self) -> dict[str, Tensor]:
        return self.env.state()

    def get_metrics(self) -> Any:
        return self.metrics.reduce()

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {COMPONENT_RL_MODULE: self.module.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over the learners' weights."""
        weights = state.get(COMPONENT_RL_MODULE)
        if weights is not None:
            weights = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            self.module.set_state(weights.get(DEFAULT_MODULE_ID, weights))

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[()], dict[str, Any]]:
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        return [(COMPONENT_RL_MODULE, self.module)]


def spaces(contract: Contract) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Of one environment's observations and actions."""
    return (
        gym.spaces.Box(-np.inf, np.inf, (contract.observation_size,), np.float32),
        gym.spaces.Box(-1, 1, (contract.action_size,), np.float32),
    )

"""One evaluation episode under the mean action of a trained actor, frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from envs.base import GoalEnvSpec
from envs.host import HostBatch
from orchestrator.crl.agent import Topologies
from orchestrator.crl.module import Setup
from orchestrator.errors import InputError
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.trials import Found
from orchestrator.workloads.crl import Spec

Act = Callable[[np.ndarray], np.ndarray]  # (1, S + G) to (1, A)


@dataclass(frozen=True)
class Episode:
    """T steps, and so T + 1 frames."""

    env: GoalEnvSpec  # as it is judged
    step: int  # of the checkpoint
    observations: np.ndarray  # (T + 1, S + G)
    physics: tuple[Any, ...]  # of each frame but the last where it ended the episode; as the environment keeps it
    ended: bool  # before its full length

    @property
    def achieved(self) -> np.ndarray:
        """(T + 1, G): the coordinates that are to reach the goal."""
        return self.observations[:, self.env.contract.goal_index]

    @property
    def goals(self) -> np.ndarray:
        """(T + 1, G); constant but where the goal is to hold something that moves."""
        return self.observations[:, self.env.contract.state_size :]

    @property
    def at_goal(self) -> int:
        """Steps that ended within the radius."""
        return int(np.sum(self.env.judge(self.observations[1:])[1]))


def episode(found: Found[Spec], seed: int) -> Episode:
    """Play the newest checkpoint of a trial.

    Raises:
        InputError: there is none.
    """
    trial = found.spec
    checkpoints = Checkpoints(found.folder / "checkpoints", trial.model_dump(mode="json"))
    newest = checkpoints.newest()
    if newest is None:
        hint = "" if trial.train.checkpoint_every else "; its train.checkpoint_every is 0"
        raise InputError(f"trial {found.trial} of study {found.study} has no checkpoint to play{hint}")
    topologies = Topologies(*trial.topologies)
    agent = Setup(trial.env, trial.model, topologies, trial.agent, trial.train, trial.seed).new_agent()
    agent.load_state_dict(checkpoints.load(newest)["algorithm"]["agent"]["networks"])

    @torch.inference_mode()
    def act(observation: np.ndarray) -> np.ndarray:
        mean, _ = agent.actor(torch.from_numpy(np.array(observation)))
        action: np.ndarray = torch.tanh(mean).numpy()
        return action

    env = trial.env.evaluation()
    batch = env.build(1)
    frames = list(_on_host(batch, act, seed) if isinstance(batch, HostBatch) else _in_jax(batch, act, seed))
    physics = tuple(held for _, held, _ in frames if held is not None)
    return Episode(env, newest, np.stack([observation for observation, *_ in frames]), physics, frames[-1][-1])


Frame = tuple[np.ndarray, Any, bool]  # observation (S + G), physics or None, whether the episode ended early


def _on_host(batch: HostBatch, act: Act, seed: int) -> Iterator[Frame]:
    observation = batch.reset(seed)
    yield observation[0], batch.state()["physics"][0], False
    while True:
        observation, step = batch.step(act(observation))
        done = bool(step.done[0])
        yield step.final_obs[0], None if done else batch.state()["physics"][0], bool(step.terminated[0])
        if done:
            return


def _in_jax(batch: Any, act: Act, seed: int) -> Iterator[Frame]:
    """The physics of a frame is numpy."""
    import jax

    def first(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.array(leaf[0]), tree)

    advance = jax.jit(batch.step)
    state = jax.jit(batch.reset)(jax.random.PRNGKey(seed))
    yield np.array(state.obs[0]), first(state.physics), False
    while True:
        state, step = advance(state, act(np.array(state.obs)))
        done = bool(step.done[0])
        yield np.array(step.final_obs[0]), None if done else first(state.physics), bool(step.terminated[0])
        if done:
            return

"""N environments as pure functions of jax: how an episode ends, what begins the next, and what a broken state does.

`JaxEnv` is the physics of one environment. `JaxBatch` runs N of them side by side, and is meant to be traced: within
`jax.jit` or `jax.lax.scan`. Its arrays are strongly typed, so a step takes what `reset` returns, and what a step
returns, without a second compilation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from envs.base import Batch, GoalEnvSpec, Step

Tree = TypeVar("Tree")
Physics = Any  # what one kind of environment keeps from step to step: a pytree of arrays


class JaxEnv(ABC):
    """One environment without episodes. Every method is pure and takes no batch dimension."""

    @abstractmethod
    def reset(self, key: jax.Array) -> Physics:
        """A start and a goal, drawn at random."""

    @abstractmethod
    def step(self, physics: Physics, action: jax.Array) -> Physics:
        """`control_dt` seconds later, after action (A,) in [-1, 1]."""

    @abstractmethod
    def observe(self, physics: Physics) -> jax.Array:
        """State, then goal: (S + G,) float32. It must show it when the physics is no longer finite."""

    def fallen(self, physics: Physics) -> jax.Array:
        """Whether the task ends here, in failure: () bool."""
        return jnp.zeros((), bool)


class BatchState(NamedTuple):
    """All that N environments need to go on."""

    physics: Physics  # (N, ...)
    obs: jax.Array  # (N, S + G) float32
    elapsed: jax.Array  # (N,) int32, steps of the current episode
    episode: jax.Array  # (N,) int32, rises by 1 with every episode of its environment
    starts: tuple[Physics, jax.Array]  # (N, starts, ...), the states that episodes begin from, and their observations
    key: jax.Array  # draws the starts


class JaxBatch(Batch):
    """N environments stepped together."""

    def __init__(self, spec: GoalEnvSpec, env: JaxEnv, num_envs: int) -> None:
        self.spec, self.contract, self.env, self.num_envs = spec, spec.contract, env, num_envs
        self.starts = spec.starts if spec.goal_resample == "episode" else 1

    def reset(self, key: jax.Array) -> BatchState:
        """Every environment at the beginning of an episode. Equal keys give equal states."""
        key, own = jax.random.split(key)
        with jax.default_matmul_precision("highest"):  # TF32 on a GPU would change the physics from card to card
            physics = jax.vmap(jax.vmap(self.env.reset))(jax.random.split(own, (self.num_envs, self.starts)))
            starts = (physics, jax.vmap(jax.vmap(self.env.observe))(physics))
        physics, obs = jax.tree.map(lambda leaf: leaf[:, 0], starts)
        zero = jnp.zeros(self.num_envs, jnp.int32)
        return _strong(BatchState(physics, obs, zero, zero, starts, key))

    def step(self, state: BatchState, actions: jax.Array) -> tuple[BatchState, Step]:
        """One step of all, after actions (N, A). An environment whose episode ends is at the start of its next one."""
        with jax.default_matmul_precision("highest"):
            physics = jax.vmap(self.env.step)(state.physics, actions)
            seen = jax.vmap(self.env.observe)(physics)
            fallen = jax.vmap(self.env.fallen)(physics)
        broken = ~jnp.isfinite(seen).all(-1)
        elapsed = state.elapsed + 1
        step = self._report(jnp.where(broken[:, None], state.obs, seen), fallen | broken, broken, elapsed)
        key, starts = self._starts(state)
        physics, obs = _where(step.done, starts, (physics, seen))
        elapsed = jnp.where(step.done, 0, elapsed)
        episode = state.episode + step.done
        return _strong((BatchState(physics, obs, elapsed, episode, state.starts, key), step))

    def _report(self, final_obs: jax.Array, terminated: jax.Array, broken: jax.Array, elapsed: jax.Array) -> Step:
        truncated = (elapsed >= self.spec.episode_length) & ~terminated
        distance, *successes = self.spec.judge(final_obs)
        return Step(final_obs, terminated, truncated, broken, distance, *(success & ~broken for success in successes))

    def _starts(self, state: BatchState) -> tuple[jax.Array, tuple[Physics, jax.Array]]:
        """The start that each environment would take now, (N, ...)."""
        if self.starts == 1:
            return state.key, jax.tree.map(lambda leaf: leaf[:, 0], state.starts)
        key, own = jax.random.split(state.key)
        pick = jax.random.randint(own, (self.num_envs,), 0, self.starts)
        return key, jax.tree.map(lambda leaf: leaf[jnp.arange(self.num_envs), pick], state.starts)


class Compiled:
    """A `JaxBatch` that keeps its own state and speaks numpy, with the methods of `envs.host.HostBatch`."""

    def __init__(self, batch: JaxBatch) -> None:
        self.batch = batch
        self._reset, self._step = jax.jit(batch.reset), jax.jit(batch.step)
        self.state: BatchState | None = None

    def reset(self, seed: int) -> np.ndarray:
        """Observations (N, S + G) at the beginning of N episodes."""
        self.state = self._reset(jax.random.PRNGKey(seed))
        return np.array(self.state.obs)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, Step]:
        """Observations (N, S + G) after actions (N, A), and the report of the step.

        Raises:
            RuntimeError: there was no reset.
        """
        if self.state is None:
            raise RuntimeError("reset the environments before the first step")
        self.state, step = self._step(self.state, jnp.asarray(actions, jnp.float32))
        return np.array(self.state.obs), Step(*map(np.array, step))


def _where(mask: jax.Array, one: Any, other: Any) -> Any:
    """Leaves (N, ...) of `one` where the mask (N,) is true, of `other` elsewhere."""

    def choose(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, one, other)


def _strong(tree: Tree) -> Tree:
    """The same values without jax's weak types, which would make a second signature, and so a second compilation."""
    strong: Tree = jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), tree)
    return strong

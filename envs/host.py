"""How N environments run in numpy: when episodes end, where the next ones begin, and what a broken state leads to.

A task says how its physics moves. Its state is one row of float64 per environment, which holds all that the next step
depends on, the goal too: a batch is saved and put back as arrays.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from envs.base import Batch, GoalEnvSpec, Step

Array = NDArray[np.float64]
Observation = NDArray[np.float32]
Flags = NDArray[np.bool_]


class HostBatch(Batch):
    """N environments, one step at a time, on the CPU.

    The arrays that `reset` and `step` return are never written to again.

    Attributes:
        observation: (N, S + G), what the next action answers to.
        elapsed: (N,) int32, steps of the running episode.
        episode: (N,) int32, how many episodes ended before it.
    """

    observation: Observation
    elapsed: NDArray[np.int32]
    episode: NDArray[np.int32]

    def __init__(self, spec: GoalEnvSpec, num_envs: int) -> None:
        self.spec, self.contract, self.num_envs = spec, spec.contract, num_envs
        self._clock = -1  # until the first reset

    @abstractmethod
    def first(self, rng: np.random.Generator, count: int) -> Array:
        """(count, P): states in which episodes begin, each with its goal."""

    @abstractmethod
    def advance(self, physics: Array, actions: Array) -> Array:
        """(N, P): the states one step later. `physics` (N, P) stays as it is; `actions` are (N, A) in [-1, 1]."""

    @abstractmethod
    def observe(self, physics: Array) -> Observation:
        """(.., S + G) of states (.., P)."""

    def fallen(self, physics: Array) -> Flags:
        """(N,): which states end their episode; in most tasks, none."""
        return np.zeros(len(physics), dtype=bool)

    def reset(self, seed: int) -> Observation:
        """Begin the first episodes; equal seeds give equal runs. Returns (N, S + G)."""
        count = self.spec.starts if self.spec.goal_resample == "episode" else 1
        rng = np.random.default_rng(seed)
        self._seed, self._clock = seed, 0
        self._starts = np.stack([self.first(rng, self.num_envs) for _ in range(count)])  # (starts, N, P)
        self._start_obs = self.observe(self._starts)
        self._physics, self.observation = self._starts[0], self._start_obs[0]
        self.elapsed = np.zeros(self.num_envs, dtype=np.int32)
        self.episode = np.zeros(self.num_envs, dtype=np.int32)
        return self.observation

    def step(self, actions: NDArray[np.floating]) -> tuple[Observation, Step]:
        """One step with `actions` (N, A); where an episode ended, the (N, S + G) returned begin the next one."""
        if self._clock < 0:
            raise RuntimeError("reset the environments before the first step")
        self._clock += 1
        # MuJoCo takes a control that is no number for zero: it has to be noticed here.
        bad = ~np.isfinite(actions).all(1)
        physics = self.advance(self._physics, np.clip(actions, -1, 1, dtype=np.float64))
        with np.errstate(over="ignore"):  # of float32; told as broken
            final = self.observe(physics)
        broken = bad | ~np.isfinite(physics).all(1) | ~np.isfinite(final).all(1)
        if broken.any():
            physics = np.where(broken[:, None], self._physics, physics)
            final = np.where(broken[:, None], self.observation, final)
        elapsed = self.elapsed + np.int32(1)
        terminated = self.fallen(physics) | broken
        truncated = ~terminated & (elapsed >= self.spec.episode_length)
        distance, *successes = self.spec.judge(final)
        step = Step(final, terminated, truncated, broken, distance, *(success & ~broken for success in successes))
        self._physics, self.observation, self.elapsed = physics, final, elapsed
        done = step.done
        if done.any():
            self._begin(done)
        return self.observation, step

    def _begin(self, done: Flags) -> None:
        """Put the environments that are `done` (N,) where an episode begins."""
        rng = np.random.default_rng((self._seed, self._clock))  # no generator to save: the clock tells the draws
        row = rng.integers(len(self._starts), size=self.num_envs), np.arange(self.num_envs)
        self._physics = np.where(done[:, None], self._starts[row], self._physics)
        self.observation = np.where(done[:, None], self._start_obs[row], self.observation)
        self.elapsed = np.where(done, np.int32(0), self.elapsed)
        self.episode = self.episode + done.astype(np.int32)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """All that the coming steps depend on."""
        return {
            "physics": self._physics,
            "starts": self._starts,
            "elapsed": self.elapsed,
            "episode": self.episode,
            "clock": np.array([self._seed, self._clock]),
        }

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observation:
        """Go on exactly where `state` was taken; returns (N, S + G).

        Raises:
            ValueError: it is of another number of environments or of another task.
        """
        starts = np.array(state["starts"], dtype=np.float64)
        width = self.first(np.random.default_rng(0), 1).shape[1]
        if starts.shape[1:] != (self.num_envs, width):
            raise ValueError(
                f"a saved state of {starts.shape[1]} environments with {starts.shape[2]} numbers each; "
                f"{self.spec.kind} has {self.num_envs} here, with {width}"
            )
        self._starts, self._start_obs = starts, self.observe(starts)
        self._physics = np.array(state["physics"], dtype=np.float64)
        self.observation = self.observe(self._physics)
        self.elapsed, self.episode = (np.array(state[name], dtype=np.int32) for name in ("elapsed", "episode"))
        self._seed, self._clock = (int(number) for number in np.asarray(state["clock"]).tolist())
        return self.observation

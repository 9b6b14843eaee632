"""What a goal-reaching environment is: its spec, where the goal stands in an observation, and what a batch of it does.

An observation is a state followed by a goal: (S + G). `Contract.goal_index` picks the G coordinates of a state that
count as the goal it achieved. An environment succeeds in a step when that lies within `radius` of the goal.

Every environment file in this folder defines one `Spec`; the file's name, with - for _, is its kind. Specs import
neither jax nor mujoco: `build` does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

GoalResample = Literal["never", "episode"]


@dataclass(frozen=True)
class Contract:
    """The sizes of an environment, and when it counts as solved."""

    state_size: int  # S
    goal_index: tuple[int, ...]  # G of the S coordinates
    action_size: int  # A; actions lie in [-1, 1]
    radius: float  # distance below which a step is a success
    easy: float  # a looser radius, and
    hard: float  # a tighter one; `radius` itself where none was published
    control_dt: float  # seconds of a step

    def __post_init__(self) -> None:
        for size, value in (("state_size", self.state_size), ("action_size", self.action_size)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{size} should be a whole number from 1, got {value!r}")
        if not self.goal_index:
            raise ValueError("goal_index should name at least one coordinate of a state, got none")
        for index in self.goal_index:
            if not isinstance(index, int) or not 0 <= index < self.state_size:
                raise ValueError(f"goal_index {index!r}: a state has coordinates 0 to {self.state_size - 1}")
        for name in ("radius", "easy", "hard", "control_dt"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} should be a positive number, got {getattr(self, name)}")

    @property
    def goal_size(self) -> int:
        return len(self.goal_index)

    @property
    def observation_size(self) -> int:
        return self.state_size + self.goal_size


class Verdict(NamedTuple):
    """How near observations are to their goals; arrays of numpy or of jax, as they were."""

    distance: Any  # of the achieved goal from the goal
    success: Any  # bool
    easy: Any
    hard: Any


class Step(NamedTuple):
    """What N environments report of one step; arrays of N, of numpy or of jax.

    Where an episode ended, the environment has begun the next one already (AutoresetMode.SAME_STEP): `final_obs` is the
    last observation of the old one, which nothing else shows.
    """

    final_obs: Any  # (N, S + G) float32, before any reset
    terminated: Any  # bool: the state left the region in which the task goes on
    truncated: Any  # bool: the episode reached its length
    broken: Any  # bool: the state was no longer finite; counts as terminated, and final_obs is the one before it
    # Of `final_obs`; a broken step is no success.
    distance: Any  # float32, of the achieved goal from the goal
    success: Any  # bool, as are the next two
    success_easy: Any
    success_hard: Any

    @property
    def done(self) -> Any:
        return self.terminated | self.truncated


class GoalEnvSpec(BaseModel):
    """One environment and how its episodes go."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: str
    episode_length: int = Field(default=1000, ge=1)  # steps
    # never: each of the N environments keeps one start and one goal for the whole run, as in all published results.
    # episode: each episode begins from one of `starts` others, drawn at random.
    goal_resample: GoalResample = "never"
    starts: int = Field(default=16, ge=2)  # starts per environment that "episode" draws from

    @property
    @abstractmethod
    def contract(self) -> Contract: ...

    def evaluation(self) -> Self:
        """The environment in which a policy trained here is judged: mazes have one with fewer goals."""
        return self

    def judge(self, observation: Any) -> Verdict:
        """Distance from the goal and success, of observations (..., S + G) of numpy or of jax."""
        import numpy as np  # planning needs none

        contract = self.contract
        offset = observation[..., np.array(contract.goal_index)] - observation[..., contract.state_size :]
        distance = (offset * offset).sum(-1) ** 0.5
        return Verdict(distance, *(distance < radius for radius in (contract.radius, contract.easy, contract.hard)))

    @property
    def host_only(self) -> bool:
        """Whether it runs in numpy whatever the machine has."""
        return False

    @abstractmethod
    def build(self, num_envs: int) -> Batch:
        """N environments to be stepped together.

        Raises:
            ValueError: what this environment needs is not there, in one line.
        """


class Batch(ABC):
    """N environments with their episodes: `envs/functional.py` runs them in jax, `envs/host.py` in numpy."""

    spec: GoalEnvSpec
    contract: Contract
    num_envs: int


class JaxSpec(GoalEnvSpec):
    """An environment that runs in jax."""

    @abstractmethod
    def environment(self) -> Any:
        """One of it, without a batch: an `envs.functional.JaxEnv`."""

    def build(self, num_envs: int) -> Batch:
        from envs.functional import JaxBatch

        return JaxBatch(self, self.environment(), num_envs)

"""Goal-reaching environments as gymnasium vector environments, and the ids under which `make_vec` knows them.

    from envs import vector
    vector.register()
    envs = gymnasium.make_vec("ancre/ant_big_maze-v0", num_envs=64)

Every kind has an id with its file's name, whose fields are keyword arguments; the tasks that papers name have one each.
"""

import importlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.base import GoalEnvSpec, Step
from envs.functional import Compiled, JaxBatch

KINDS = (
    *("ant", "ant_ball", "ant_maze", "ant_push", "arm_binpick", "arm_grasp", "arm_push", "arm_reach"),
    *("humanoid", "humanoid_maze", "point", "pusher", "reacher", "simple_maze"),
)
PUBLISHED: dict[str, tuple[str, dict[str, str]]] = {
    **{f"ant_{layout}_maze": ("ant_maze", {"layout": layout}) for layout in ("u", "u2", "u3", "u4", "u5", "u6", "u7")},
    **{f"ant_{layout}_maze": ("ant_maze", {"layout": layout}) for layout in ("big", "hardest")},
    **{f"humanoid_{layout}_maze": ("humanoid_maze", {"layout": layout}) for layout in ("u", "big")},
    "simple_u_maze": ("simple_maze", {"layout": "u"}),
    **{
        f"{kind}_{difficulty}": (kind, {"difficulty": difficulty})
        for kind in ("arm_push", "arm_binpick", "pusher")
        for difficulty in ("easy", "hard")
    },
}


class GoalVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N environments with one goal each. The reward of a step is 1 within the radius of the goal, else 0.

    `infos` holds success, success_easy, success_hard (N,) bool, distance (N,), broken (N,) bool (see `Step`), and where
    episodes ended final_obs: an object array (N,) with the last observation of each, or None.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012 - gymnasium's own form

    def __init__(self, spec: GoalEnvSpec, num_envs: int) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs should be at least 1, got {num_envs}")
        batch: Any = spec.build(num_envs)
        self.batch = Compiled(batch) if isinstance(batch, JaxBatch) else batch
        self.contract, self.num_envs = batch.contract, num_envs
        self.single_observation_space = Box(-np.inf, np.inf, (self.contract.observation_size,), np.float32)
        self.single_action_space = Box(-1.0, 1.0, (self.contract.action_size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Observations (N, S + G). Equal seeds give equal episodes; without a seed they go on from the last one.

        Raises:
            ValueError: a list of seeds; all environments draw from one.
        """
        if isinstance(seed, list):
            raise ValueError("seed: the environments of a batch draw from one seed, give a number")
        if seed is not None:
            self._np_random, self._np_random_seed = gymnasium.utils.seeding.np_random(seed)
        return self.batch.reset(int(self.np_random.integers(2**31))), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Observations (N, S + G), rewards (N,), terminated (N,), truncated (N,), infos, after actions (N, A).

        Raises:
            ValueError: actions of another shape.
        """
        if np.shape(actions) != self.action_space.shape:
            raise ValueError(f"actions of shape {np.shape(actions)}: these environments take {self.action_space.shape}")
        obs, step = self.batch.step(actions)
        return obs, step.success.astype(np.float64), step.terminated, step.truncated, _infos(step)


def _infos(step: Step) -> dict[str, Any]:
    infos: dict[str, Any] = {}
    for name in ("success", "success_easy", "success_hard", "distance", "broken"):
        infos[name], infos[f"_{name}"] = getattr(step, name), np.ones(len(step.success), bool)
    if step.done.any():
        infos["final_obs"] = np.full(len(step.done), None, object)
        for index in np.flatnonzero(step.done):
            infos["final_obs"][index] = step.final_obs[index]
        infos["_final_obs"] = step.done
    return infos


def make(num_envs: int, kind: str, **fields: Any) -> GoalVectorEnv:
    """N environments of the kind in the file `kind`, with these fields: what gymnasium calls."""
    return GoalVectorEnv(importlib.import_module(f"envs.{kind}").Spec(**fields), num_envs)


def register() -> None:
    """Makes all of them known to `gymnasium.make_vec`, as `ancre/<name>-v0`. To call it again changes nothing."""
    for name, (kind, fields) in ({kind: (kind, {}) for kind in KINDS} | PUBLISHED).items():
        if f"ancre/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"ancre/{name}-v0", vector_entry_point="envs.vector:make", kwargs={"kind": kind, **fields}
            )

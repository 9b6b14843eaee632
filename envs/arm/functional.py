"""The arm under MJX, for an accelerator: on a CPU it makes a few steps a second only."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from mujoco import mjx

from envs.arm.scene import load
from envs.arm.task import CONTROL_STEPS, Task
from envs.functional import JaxEnv


class ArmEnv(JaxEnv):
    """A state is one row (P,) of `envs.arm.task`, in float32."""

    def __init__(self, task: Task) -> None:
        self.task = task
        model = load(task)
        self._model, self._blank = mjx.put_model(model), mjx.make_data(model)
        self._end = model.site("end").id
        self._body = int(model.site_bodyid[self._end])

    def reset(self, key: jax.Array) -> jax.Array:
        cube, goal = (
            jnp.zeros(3) if box is None else box.draw(jax.random.uniform(own, (3,), minval=-1), jnp)
            for own, box in zip(jax.random.split(key), (self.task.cube, self.task.goal), strict=True)
        )
        q = self.task.start(cube, jnp)
        return self._row(self._blank.replace(qpos=q), goal[:0] if self.task.grasps else goal)

    def step(self, physics: jax.Array, action: jax.Array) -> jax.Array:
        task = self.task
        parts = jnp.split(physics, (task.nq, task.nq + task.nv, task.solver_size))
        data = self._blank.replace(
            qpos=parts[0], qvel=parts[1], qacc_warmstart=parts[2], ctrl=task.controls(jnp.clip(action, -1, 1), jnp)
        )
        data = jax.lax.fori_loop(0, CONTROL_STEPS, lambda _, data: mjx.step(self._model, data), data)
        return self._row(data, parts[3][6 if task.cube is None else 12 :])

    def _row(self, data: Any, goal: jax.Array) -> jax.Array:
        """A step leaves positions as they were before it: they are brought up to date."""
        data = mjx.com_vel(self._model, mjx.com_pos(self._model, mjx.kinematics(self._model, data)))
        end = data.site_xpos[self._end]
        spin, slide = jnp.split(
            data.cvel[self._body], 2
        )  # of the point of the body that is at the arm's centre of mass
        velocity = slide + jnp.cross(spin, end - data.subtree_com[self._model.body_rootid[self._body]])
        solver = [data.qpos, data.qvel, data.qacc_warmstart]
        return jnp.concatenate([*solver, end, velocity, data.site_xpos[1:].ravel(), goal])

    def observe(self, physics: jax.Array) -> jax.Array:
        seen: jax.Array = self.task.observe(physics, jnp)
        return jnp.where(jnp.isfinite(physics).all(), seen, jnp.nan)  # most of a row is not shown

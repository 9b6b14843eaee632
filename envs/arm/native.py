"""The arm under native MuJoCo, in threads: each environment is one row, and a thread carries it through 25 steps.

At its force limit a motor damps in MJX, as in all published runs, and does not in MuJoCo: with implicit integration
MuJoCo leaves the velocity derivative of a limited force out, and the light joint 6 then turns several times as fast.
So MuJoCo is given no limits here, but in every step the controls whose forces are the limited ones.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import mujoco
import numpy as np

from envs.arm.scene import load
from envs.arm.task import CONTROL_STEPS, Task
from envs.base import GoalEnvSpec
from envs.host import Array, HostBatch, Observation

ROWS = 8  # of a thread's turn: few enough that no thread waits long for the last one
STATE = mujoco.mjtState.mjSTATE_QPOS | mujoco.mjtState.mjSTATE_QVEL | mujoco.mjtState.mjSTATE_WARMSTART


class NativeArms(HostBatch):
    """As many threads as OMP_NUM_THREADS says, which Ray sets to a worker's CPUs; else one for each CPU.

    How many there are changes no number: MuJoCo lets go of Python's lock, and every row is stepped alone.
    """

    def __init__(self, spec: GoalEnvSpec, task: Task, num_envs: int) -> None:
        super().__init__(spec, num_envs)
        self.task, self.model = task, load(task)
        self._motors = Motors(self.model)
        mujoco.set_mju_user_warning(_quiet)
        threads = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(threads)
        self._idle: SimpleQueue[Any] = SimpleQueue()  # one MjData for each thread
        for _ in range(threads):
            self._idle.put(mujoco.MjData(self.model))

    def first(self, rng: np.random.Generator, count: int) -> Array:
        boxes = (self.task.cube, self.task.goal)
        units = rng.uniform(-1, 1, (2, count, 3))
        cube, goal = (unit if box is None else box.draw(unit, np) for box, unit in zip(boxes, units, strict=True))
        data = mujoco.MjData(self.model)
        rows = []
        for q, aim in zip(self.task.start(cube, np), goal, strict=True):
            data.qpos[:] = q
            rows.append(np.concatenate([self._seen(data), () if self.task.grasps else aim]))
        return np.array(rows)

    def advance(self, physics: Array, actions: Array) -> Array:
        after, controls = physics.copy(), self.task.controls(actions, np)
        turns = range(0, len(physics), ROWS)
        list(self._pool.map(lambda at: self._turn(after[at : at + ROWS], controls[at : at + ROWS]), turns))
        return after

    def _turn(self, rows: Array, controls: Array) -> None:
        """Carry some rows on, in place."""
        data = self._idle.get()
        for row, control in zip(rows, controls, strict=True):
            mujoco.mj_setState(self.model, data, row[: self.task.solver_size], STATE)
            self._motors.run(data, control)
            seen = self._seen(data)
            row[: len(seen)] = seen
        self._idle.put(data)

    def _seen(self, data: Any) -> Array:
        """A row without its goal. A step leaves positions as they were before it: they are brought up to date."""
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        mujoco.mj_comVel(self.model, data)
        solver, velocity = np.empty(self.task.solver_size), np.empty(6)  # angular, then linear
        mujoco.mj_getState(self.model, data, solver, STATE)
        mujoco.mj_objectVelocity(self.model, data, mujoco.mjtObj.mjOBJ_SITE, 0, velocity, 0)
        sites = data.site_xpos  # end, left, right
        return np.concatenate([solver, sites[0], velocity[3:], sites[1:].ravel()])

    def observe(self, physics: Array) -> Observation:
        observation: Observation = self.task.observe(physics, np)
        return observation


class Motors:
    """One for each joint but the cube's, in their order: force = gain * (control + stiffness * q + damping * qd)."""

    def __init__(self, model: Any) -> None:
        gain, bias = model.actuator_gainprm[:, 0], model.actuator_biasprm / model.actuator_gainprm[:, :1]
        self.model, self.stiffness, self.damping = model, bias[:, 1], bias[:, 2]
        self.limit = model.actuator_forcerange[:, 1] / gain  # as a control
        model.actuator_forcelimited[:] = model.actuator_ctrllimited[:] = 0

    def run(self, data: Any, control: Array) -> None:
        """Hold a control (motors,), which lies in its range, for `CONTROL_STEPS` steps."""
        count, high = len(control), self.limit
        low = -high
        q, qd, applied = data.qpos[-count:], data.qvel[-count:], data.ctrl
        for _ in range(CONTROL_STEPS):
            bias = self.stiffness * q + self.damping * qd
            # Not np.clip, which costs as much as all the rest; every microsecond here is one under Python's lock.
            np.subtract(np.minimum(np.maximum(control + bias, low), high), bias, out=applied)
            mujoco.mj_step(self.model, data)


def _quiet(message: str) -> None:
    """Instead of a line and a file MUJOCO_LOG.TXT about each state that is no number: `Step.broken` tells of them."""

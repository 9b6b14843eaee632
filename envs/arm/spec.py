"""What the specs of the arm's tasks share: which of the two simulators runs them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from envs.arm.task import Task
from envs.base import Batch, Contract, GoalEnvSpec

CONTROL_DT = 0.05  # seconds
# Of the tasks that move the cube: its position, then 7 joint angles, position and velocity of the arm's end, the gap
# between the fingers.
CUBE = Contract(17, (0, 1, 2), 5, radius=0.1, easy=0.3, hard=0.03, control_dt=CONTROL_DT)


class ArmSpec(GoalEnvSpec):
    """A task of the arm. auto: MJX where jax has an accelerator, native MuJoCo else."""

    backend: Literal["auto", "mjx", "mujoco"] = "auto"

    @property
    @abstractmethod
    def task(self) -> Task: ...

    @property
    def host_only(self) -> bool:
        return self.backend == "mujoco"

    def environment(self) -> Any:
        """One of it under MJX, without a batch: an `envs.functional.JaxEnv`."""
        from envs.arm.functional import ArmEnv

        return ArmEnv(self.task)

    def build(self, num_envs: int) -> Batch:
        if self._accelerated():
            from envs.functional import JaxBatch

            return JaxBatch(self, self.environment(), num_envs)
        from envs.arm.native import NativeArms

        return NativeArms(self, self.task, num_envs)

    def _accelerated(self) -> bool:
        if self.backend != "auto":
            return self.backend == "mjx"
        import jax

        return jax.default_backend() != "cpu"

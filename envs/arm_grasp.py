"""The hand closes around a cube on the table.

State: position of the cube, 7 joint angles, position and velocity of the arm's end, positions of the left and the right
fingertip, gap between them. Goal: where the fingertips are and how far apart, when they hold the cube; it follows it.
"""

from typing import Any, Literal

from envs.arm.spec import CONTROL_DT, ArmSpec
from envs.arm.task import Box, Task
from envs.base import Contract, Verdict


class Spec(ArmSpec):
    """The cube starts anywhere in a square of 0.6 m."""

    kind: Literal["arm-grasp"] = "arm-grasp"

    @property
    def contract(self) -> Contract:
        return Contract(23, tuple(range(16, 23)), 5, radius=0.05, easy=0.15, hard=0.02, control_dt=CONTROL_DT)

    @property
    def task(self) -> Task:
        return Task(cube=Box((0.0, 0.6, 0.07), (0.3, 0.3, 0.0)), goal=None)

    def judge(self, observation: Any) -> Verdict:
        """Success: the middle of the fingertips is near the cube, and their gap is near the goal's."""
        away = (observation[..., 16:19] + observation[..., 19:22]) / 2 - observation[..., :3]
        near, gap = (away * away).sum(-1) ** 0.5, abs(observation[..., 22] - observation[..., -1])
        rule = self.contract
        limits = ((rule.radius, 0.02), (rule.easy, 0.05), (rule.hard, 0.005))
        return Verdict(super().judge(observation).distance, *((near < a) & (gap < b) for a, b in limits))

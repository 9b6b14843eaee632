"""The arm's end goes to a point in the air.

State: 7 joint angles, position (3) and velocity (3) of the arm's end. Goal: a position of the end.
"""

from typing import Literal

from envs.arm.spec import CONTROL_DT, ArmSpec
from envs.arm.task import Box, Task
from envs.base import Contract


class Spec(ArmSpec):
    """Goals fill a box of 0.4 m in front of the arm."""

    kind: Literal["arm-reach"] = "arm-reach"

    @property
    def contract(self) -> Contract:
        return Contract(13, (7, 8, 9), 4, radius=0.1, easy=0.3, hard=0.03, control_dt=CONTROL_DT)

    @property
    def task(self) -> Task:
        return Task(cube=None, goal=Box((0.0, 0.5, 0.3), (0.2, 0.2, 0.2)))

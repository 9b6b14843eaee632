"""The arm carries a cube from one bin to another.

State and goal are those of arm-push. The walls of the bins are 0.066 m high.
"""

from typing import Literal

from envs.arm.spec import CUBE, ArmSpec
from envs.arm.task import Bins, Box, Task
from envs.base import Contract


class Spec(ArmSpec):
    """Bins of 0.29 m (easy) or 0.39 m (hard), and within them squares of 0.18 or 0.3 m for start and goal."""

    kind: Literal["arm-binpick"] = "arm-binpick"
    difficulty: Literal["easy", "hard"] = "hard"

    @property
    def contract(self) -> Contract:
        return CUBE

    @property
    def task(self) -> Task:
        if self.difficulty == "easy":  # the start square is not in the middle of its bin, as published
            start, goal, half, bins = -0.15, 0.17, 0.09, Bins(0.17, 0.145)
        else:
            start, goal, half, bins = -0.3, 0.3, 0.15, Bins(0.3, 0.195)
        square = (half, half, 0.0)
        return Task(cube=Box((start, 0.6, 0.07), square), goal=Box((goal, 0.6, 0.03), square), bins=bins)

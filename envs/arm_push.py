"""The arm pushes a cube over the table.

State: position of the cube, 7 joint angles, position and velocity of the arm's end, gap between the fingers. Goal: a
position of the cube.
"""

from typing import Literal

from envs.arm.spec import CUBE, ArmSpec
from envs.arm.task import Box, Task
from envs.base import Contract

HEIGHT = {
    "start": 0.07,
    "goal": 0.03,
}  # metres of the cube's centre: dropped from 0.04 above the table, and lying on it
# Metres: centres of the start and the goal square are (-x, y) and (x, y), each so wide to either side.
SQUARES = {"easy": (0.1, 0.6, 0.1), "hard": (0.25, 0.65, 0.25)}


class Spec(ArmSpec):
    """Start and goal lie in two squares side by side, of 0.2 m (easy) or 0.5 m (hard)."""

    kind: Literal["arm-push"] = "arm-push"
    difficulty: Literal["easy", "hard"] = "hard"

    @property
    def contract(self) -> Contract:
        return CUBE

    @property
    def task(self) -> Task:
        x, y, half = SQUARES[self.difficulty]
        square = (half, half, 0.0)
        return Task(cube=Box((-x, y, HEIGHT["start"]), square), goal=Box((x, y, HEIGHT["goal"]), square))

"""A ball is pushed through a maze to one of its cells: the ant's mazes without learning to walk."""

from typing import Any, Literal, Self

from envs.base import Contract, JaxSpec
from envs.maze import evaluation

CELL = 4.0  # m


class Spec(JaxSpec):
    kind: Literal["simple-maze"] = "simple-maze"
    layout: Literal["u", "big", "hardest", "u_eval", "big_eval"] = "u"

    @property
    def contract(self) -> Contract:
        return Contract(4, (0, 1), action_size=2, radius=0.5, easy=2.0, hard=0.5, control_dt=0.05)

    def evaluation(self) -> Self:
        return self.model_copy(update={"layout": evaluation(self.layout)})

    def environment(self) -> Any:
        from envs.physics.simple_maze import BallMaze

        return BallMaze(self.layout, CELL)

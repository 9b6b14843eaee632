"""Brax's ant walks through a maze to one of its cells; judged on the far cells only, in the layout's *_eval."""

from typing import Any, Literal, Self

from envs.base import Contract, JaxSpec
from envs.maze import evaluation

CELL = 4.0  # m
# fmt: off
Layout = Literal[
    "u", "u2", "u3", "u4", "u5", "u6", "u7", "big", "hardest",
    "u_eval", "u2_eval", "u3_eval", "u4_eval", "u5_eval", "u6_eval", "u7_eval", "big_eval",
]
# fmt: on


class Spec(JaxSpec):
    kind: Literal["ant-maze"] = "ant-maze"
    layout: Layout = "u"

    @property
    def contract(self) -> Contract:
        return Contract(29, (0, 1), action_size=8, radius=0.5, easy=2.0, hard=0.5, control_dt=0.05)

    def evaluation(self) -> Self:
        return self.model_copy(update={"layout": evaluation(self.layout)})

    def environment(self) -> Any:
        from envs.physics.ant import AntMaze

        return AntMaze(self.layout, CELL)

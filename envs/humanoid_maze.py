"""Brax's humanoid walks through a maze with cells of 2 m to one of them; judged on the far cells only."""

from typing import Any, Literal, Self

from envs.base import Contract, JaxSpec
from envs.humanoid import ControlDt
from envs.maze import evaluation

CELL = 2.0  # m; half the ant's, as in JaxGCRL and scaling-crl


class Spec(JaxSpec):
    kind: Literal["humanoid-maze"] = "humanoid-maze"
    layout: Literal["u", "big", "u_eval", "big_eval"] = "u"
    control_dt: ControlDt = 0.03

    @property
    def contract(self) -> Contract:
        return Contract(268, (0, 1, 2), action_size=17, radius=0.5, easy=2.0, hard=0.5, control_dt=self.control_dt)

    def evaluation(self) -> Self:
        return self.model_copy(update={"layout": evaluation(self.layout)})

    def environment(self) -> Any:
        from envs.physics.humanoid import HumanoidMaze

        return HumanoidMaze(self.control_dt, self.layout, CELL)

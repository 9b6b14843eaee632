"""Brax's ant walks to a goal 10 m away, in a direction drawn at random."""

from typing import Any, Literal

from envs.base import Contract, JaxSpec

CONTRACT = Contract(state_size=29, goal_index=(0, 1), action_size=8, radius=0.5, easy=2.0, hard=0.5, control_dt=0.05)


class Spec(JaxSpec):
    kind: Literal["ant"] = "ant"

    @property
    def contract(self) -> Contract:
        return CONTRACT

    def environment(self) -> Any:
        from envs.physics.ant import AntCircle

        return AntCircle()

"""Brax's ant walks to a point 10 m away, in a direction drawn at random."""

from typing import Any, Literal

from envs.base import Contract, JaxSpec


class Spec(JaxSpec):
    kind: Literal["ant"] = "ant"

    @property
    def contract(self) -> Contract:
        return Contract(29, (0, 1), action_size=8, radius=0.5, easy=2.0, hard=0.5, control_dt=0.05)

    def environment(self) -> Any:
        from envs.physics.ant import AntCircle

        return AntCircle(distance=10.0)

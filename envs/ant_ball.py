"""Brax's ant pushes a ball to a point 5 m away.

The goal is compared with the ball's x, y, coordinates 29 and 30 of a state, as in JaxGCRL; scaling-crl takes 28 and 29,
the velocity of the last ankle and the ball's x.
"""

from typing import Any, Literal

from envs.base import Contract, JaxSpec


class Spec(JaxSpec):
    kind: Literal["ant-ball"] = "ant-ball"

    @property
    def contract(self) -> Contract:
        return Contract(31, (29, 30), action_size=8, radius=0.5, easy=2.0, hard=0.5, control_dt=0.05)

    def environment(self) -> Any:
        from envs.physics.ant_objects import AntBall

        return AntBall()

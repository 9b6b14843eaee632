"""Brax's ant walks to a corner of a room whose middle is filled by a block that it has to push away first."""

from typing import Any, Literal

from envs.base import Contract, JaxSpec


class Spec(JaxSpec):
    kind: Literal["ant-push"] = "ant-push"

    @property
    def contract(self) -> Contract:
        return Contract(31, (0, 1), action_size=8, radius=0.5, easy=2.0, hard=0.5, control_dt=0.05)

    def environment(self) -> Any:
        from envs.physics.ant_objects import AntPush

        return AntPush()

"""Brax's arm of two links in a plane brings its tip to a point: the quickest of the brax tasks to be learned."""

from typing import Any, Literal

from envs.base import Contract, JaxSpec


class Spec(JaxSpec):
    kind: Literal["reacher"] = "reacher"

    @property
    def contract(self) -> Contract:
        return Contract(10, (4, 5, 6), action_size=2, radius=0.05, easy=0.05, hard=0.05, control_dt=0.02)

    def environment(self) -> Any:
        from envs.physics.reacher import Reacher

        return Reacher()

"""Brax's humanoid walks to a point 1 to 5 m away, and stands there.

`control_dt` is part of the task: results at 0.03 s a step (Wang et al. 2025) and at 0.015 s (JaxGCRL, newer brax) do
not compare.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from envs.base import Contract, JaxSpec


def _known(control_dt: float) -> float:
    if control_dt not in (0.03, 0.015):
        raise ValueError("give 0.03, as published, or 0.015")
    return control_dt


ControlDt = Annotated[float, AfterValidator(_known)]  # seconds of a step


class Spec(JaxSpec):
    kind: Literal["humanoid"] = "humanoid"
    control_dt: ControlDt = 0.03

    @property
    def contract(self) -> Contract:
        return Contract(268, (0, 1, 2), action_size=17, radius=0.5, easy=2.0, hard=0.5, control_dt=self.control_dt)

    def environment(self) -> Any:
        from envs.physics.humanoid import HumanoidRing

        return HumanoidRing(self.control_dt)

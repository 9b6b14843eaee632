"""Brax's arm of seven joints pushes an object across a table to a point, near (easy) or anywhere (hard)."""

from typing import Any, Literal

from envs.base import Contract, JaxSpec


class Spec(JaxSpec):
    kind: Literal["pusher"] = "pusher"
    difficulty: Literal["easy", "hard"] = "easy"

    @property
    def contract(self) -> Contract:
        return Contract(20, (10, 11, 12), action_size=7, radius=0.1, easy=0.1, hard=0.05, control_dt=0.05)

    def environment(self) -> Any:
        from envs.physics.pusher import Pusher

        return Pusher(self.difficulty)

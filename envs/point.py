"""A point in a room, open or U-shaped, in numpy: the smallest task that needs a goal, learned in seconds.

State (x, y, vx, vy), goal (x, y), action = the velocity as a share of the greatest. A cell is 1 x 1 with its centre at
(row, column) of the layout; the point slides along walls and comes no closer to them than `CLEARANCE`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from envs.base import Contract, GoalEnvSpec
from envs.host import Array, HostBatch, Observation

LAYOUTS = {"open": "#####/#...#/#...#/#...#/#####", "u": "####/#..#/##.#/#..#/####"}  # #: wall
CONTRACT = Contract(4, (0, 1), 2, radius=0.3, easy=0.6, hard=0.15, control_dt=0.1)
SPEED = 2.0  # cells a second: a step is far shorter than a wall is thick
CLEARANCE = 0.1


class Spec(GoalEnvSpec):
    """A room of 3 x 3 cells, or a U of 5 around one of wall. Starts and goals are anywhere in it."""

    kind: Literal["point"] = "point"
    layout: Literal["open", "u"] = "u"
    episode_length: int = Field(default=100, ge=1)

    @property
    def contract(self) -> Contract:
        return CONTRACT

    @property
    def host_only(self) -> bool:
        return True

    def build(self, num_envs: int) -> Points:
        return Points(self, num_envs)


class Points(HostBatch):
    """A state is (x, y, vx, vy, goal x, goal y), which is the observation too."""

    def __init__(self, spec: Spec, num_envs: int) -> None:
        super().__init__(spec, num_envs)
        letters = np.array([list(row) for row in LAYOUTS[spec.layout].split("/")])
        self.wall: NDArray[np.bool_] = letters == "#"
        self._free = np.argwhere(~self.wall)

    def first(self, rng: np.random.Generator, count: int) -> Array:
        position, goal = (_within(self._free, rng, count) for _ in range(2))
        return np.hstack([position, np.zeros((count, 2)), goal])

    def advance(self, physics: Array, actions: Array) -> Array:
        x, y = physics[:, 0], physics[:, 1]
        move = actions * (SPEED * CONTRACT.control_dt)
        new_x = _slide(x, move[:, 0], self.wall, _cell(y))
        new_y = _slide(y, move[:, 1], self.wall.T, _cell(new_x))
        after = physics.copy()
        after[:, 0], after[:, 1] = new_x, new_y
        after[:, 2:4] = (after[:, :2] - physics[:, :2]) / CONTRACT.control_dt  # what the walls left of it
        return after

    def observe(self, physics: Array) -> Observation:
        return physics.astype(np.float32)


def _within(cells: NDArray[np.int64], rng: np.random.Generator, count: int) -> Array:
    """(count, 2) points, uniform over the cells (C, 2) as far as the walls allow."""
    reach = 0.5 - CLEARANCE
    return cells[rng.integers(len(cells), size=count)] + rng.uniform(-reach, reach, (count, 2))


def _cell(position: Array) -> NDArray[np.int64]:
    """The row or column of positions; 0, which is wall, of one that is no number."""
    return np.nan_to_num(position + 0.5).astype(np.int64)


def _slide(position: Array, move: Array, wall: NDArray[np.bool_], across: NDArray[np.int64]) -> Array:
    """Where a move along one axis ends, (N,); `wall` has that axis first, `across` is the cell on the other one."""
    cell, way = _cell(position), np.sign(move)
    blocked = wall[cell + np.nan_to_num(way).astype(np.int64), across]
    limit = cell + way * (0.5 - CLEARANCE)
    room = np.maximum((limit - position) * way, 0)  # 0 where it is closer already, past a corner
    return position + np.where(blocked, way * np.minimum(np.abs(move), room), move)

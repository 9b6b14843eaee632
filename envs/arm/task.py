"""What differs between the tasks of the arm, and how a row of numbers holds the state of one environment.

A row is qpos, qvel, the solver's warm start, position and velocity of the arm's end, positions of the left and the
right finger, goal. What follows qvel could be computed again; the warm start makes a saved run go on exactly. Methods
take rows (..., P) of numpy or of jax, and its module as `xp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Radians of joints 1 to 7: where episodes begin, and the targets of actions -1 and 1; joints 3, 5, 7 are held.
START = (1.571, 0.742, 0.0, -1.571, 0.0, 3.054, 1.449)
LOW = (0.3491, 0.0, 0.0, -3.0718, 0.0, 2.3562, 1.4487)
HIGH = (2.7925, 1.48353, 0.0, -0.0698, 0.0, 3.7525, 1.4487)
OPEN = 255.0  # the control of a finger; 0 is closed
FINGERS = (0.04, 0.04)  # metres each is open at the start
CONTROL_STEPS = 25  # of 0.002 s: an action is held for 0.05 s
GRASP = (0.0375, 0.075)  # metres from the cube's centre to a fingertip, and between the two


@dataclass(frozen=True)
class Box:
    """Where something is drawn from, uniformly."""

    center: tuple[float, float, float]  # metres
    half: tuple[float, float, float]

    def draw(self, unit: Any, xp: Any) -> Any:
        """Points (..., 3) from numbers (..., 3) that are uniform in [-1, 1]."""
        return xp.asarray(self.center) + xp.asarray(self.half) * unit


@dataclass(frozen=True)
class Bins:
    """Two square bins without floors, at x = -center and x = center."""

    center: float
    half: float  # of the outer size


@dataclass(frozen=True)
class Task:
    """One task. Without a cube the arm has no fingers either; without a goal box the goal is to hold the cube."""

    cube: Box | None
    goal: Box | None
    bins: Bins | None = None

    @property
    def grasps(self) -> bool:
        return self.goal is None

    @property
    def nq(self) -> int:
        return 7 if self.cube is None else 16  # the cube's 7 come first, the fingers' 2 last

    @property
    def nv(self) -> int:
        return 7 if self.cube is None else 15

    @property
    def solver_size(self) -> int:
        """How many numbers of a row MuJoCo goes on from."""
        return self.nq + 2 * self.nv

    def start(self, cube: Any, xp: Any) -> Any:
        """qpos (..., nq) with the cube at (..., 3)."""
        if self.cube is None:
            return xp.broadcast_to(xp.asarray(START), (*cube.shape[:-1], 7))
        rest = xp.asarray((1.0, 0.0, 0.0, 0.0, *START, *FINGERS))
        return xp.concatenate([cube, xp.broadcast_to(rest, (*cube.shape[:-1], 13))], -1)

    def controls(self, actions: Any, xp: Any) -> Any:
        """Controls (..., 7 or 9) of actions (..., 4 or 5): the four joints that move, then >0 closes the hand."""
        zero = xp.zeros_like(actions[..., 0])
        turn = [actions[..., 0], actions[..., 1], zero, actions[..., 2], zero, actions[..., 3], zero]
        low, high = xp.asarray(LOW), xp.asarray(HIGH)
        targets = (low + high) / 2 + (high - low) / 2 * xp.stack(turn, -1)
        if self.cube is None:
            return targets
        finger = xp.where(actions[..., 4:] > 0, 0.0, OPEN)
        return xp.concatenate([targets, finger, finger], -1)

    def observe(self, rows: Any, xp: Any) -> Any:
        """(..., S + G) float32: cube, joint angles, position and velocity of the end, fingers; then the goal."""
        q, seen = rows[..., : self.nq], rows[..., self.solver_size :]
        end, fingers, goal = seen[..., :6], seen[..., 6:12], seen[..., 12:]
        if self.cube is None:
            return xp.concatenate([q, end, seen[..., 6:]], -1).astype(np.float32)
        cube, angles, across = q[..., :3], q[..., 7:14], fingers[..., :3] - fingers[..., 3:]
        gap = (across * across).sum(-1, keepdims=True) ** 0.5
        if self.grasps:
            reach = xp.asarray((GRASP[0], 0.0, 0.0))
            goal = xp.concatenate([cube + reach, cube - reach, xp.full_like(gap, GRASP[1])], -1)
        shown = [fingers, gap] if self.grasps else [gap]
        return xp.concatenate([cube, angles, end, *shown, goal], -1).astype(np.float32)

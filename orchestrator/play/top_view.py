"""An episode from above: walls, start, goal, and the way of what is to reach the goal, coloured by time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.drawing import MUTED
from envs import ant_maze, humanoid_maze, maze, point, simple_maze
from envs.base import GoalEnvSpec
from orchestrator.play.episode import Episode

MAZES = {"ant-maze": ant_maze.CELL, "humanoid-maze": humanoid_maze.CELL, "simple-maze": simple_maze.CELL}  # m
GOAL = "#00916a"


def walls(env: GoalEnvSpec) -> tuple[NDArray[Any], float]:
    """Centres (n, 2) of an environment's wall cells, and how wide a cell is; none of an open one."""
    if isinstance(env, point.Spec):
        letters = np.array([list(row) for row in point.LAYOUTS[env.layout].split("/")])
        return np.argwhere(letters == "#").astype(float), 1.0
    size = MAZES.get(env.kind, 0.0)
    return (maze.cells(env.layout, "#", size), size) if size else (np.zeros((0, 2)), 0.0)  # type: ignore[attr-defined]


def extent(played: Episode) -> tuple[NDArray[Any], NDArray[Any]]:
    """The lower left and the upper right corner (2,) of all that is drawn."""
    centres, size = walls(played.env)
    goal, radius = played.goals[-1:, :2], played.env.contract.radius
    seen = [played.achieved[:, :2], goal - radius, goal + radius, centres - size / 2, centres + size / 2]
    points = np.concatenate(seen)
    return points.min(0) - radius, points.max(0) + radius


def shape(played: Episode, width: float) -> tuple[float, float]:
    """Inches of a figure of this width on which a metre is as long upwards as to the right."""
    low, high = extent(played)
    rise = (high[1] - low[1]) / (high[0] - low[0])
    return width, 0.9 + (width - 1.8) * float(np.clip(rise, 0.4, 1.4))


def draw(axes: Any, played: Episode, ink: str) -> None:
    """Onto matplotlib axes; `ink` is the colour of what has no other."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Circle, Rectangle

    way, goal, radius = played.achieved[:, :2], played.goals[-1, :2], played.env.contract.radius
    centres, size = walls(played.env)
    for corner in centres - size / 2:
        axes.add_patch(Rectangle(corner, size, size, facecolor=MUTED, edgecolor="none", alpha=0.35))
    axes.add_patch(Circle((goal[0], goal[1]), radius, facecolor=GOAL, edgecolor="none", alpha=0.35))
    axes.plot(*goal, "*", color=GOAL, markersize=11, label="goal")
    lines = LineCollection(list(np.stack([way[:-1], way[1:]], 1)), cmap="plasma", linewidths=1.8)
    lines.set_array(np.arange(len(way) - 1) * played.env.contract.control_dt)
    axes.add_collection(lines)
    axes.plot(*way[0], "o", color=ink, markersize=6, label="start")
    axes.plot(*way[-1], "s", color=ink, markersize=5, label="end")
    low, high = extent(played)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal", anchor="N")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    axes.figure.colorbar(lines, ax=axes, label="seconds", shrink=0.7)

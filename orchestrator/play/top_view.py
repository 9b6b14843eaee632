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
MARGIN = 1.0  # radii of the goal around all that happens


def walls(env: GoalEnvSpec) -> tuple[NDArray[Any], float]:
    """Centres (n, 2) of an environment's wall cells, and how wide a cell is; none of an open one."""
    if isinstance(env, point.Spec):
        letters = np.array([list(row) for row in point.LAYOUTS[env.layout].split("/")])
        return np.argwhere(letters == "#").astype(float), 1.0
    size = MAZES.get(env.kind, 0.0)
    return (maze.cells(env.layout, "#", size), size) if size else (np.zeros((0, 2)), 0.0)  # type: ignore[attr-defined]


def draw(axes: Any, played: Episode, ink: str) -> None:
    """Onto matplotlib axes; `ink` is the colour of texts."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Circle, Rectangle

    way, goal, radius = played.achieved[:, :2], played.goals[-1, :2], played.env.contract.radius
    centres, size = walls(played.env)
    for x, y in centres:
        axes.add_patch(
            Rectangle((x - size / 2, y - size / 2), size, size, facecolor=MUTED, edgecolor="none", alpha=0.35)
        )
    axes.add_patch(Circle(tuple(goal), radius, facecolor="#00916a", edgecolor="none", alpha=0.35))
    axes.plot(*goal, "*", color="#00916a", markersize=11, label="goal")
    lines = LineCollection(list(np.stack([way[:-1], way[1:]], 1)), cmap="plasma", linewidths=1.8)
    seconds = np.arange(len(way)) * played.env.contract.control_dt
    lines.set_array(seconds[:-1])
    axes.add_collection(lines)
    axes.plot(*way[0], "o", color=ink, markersize=6, label="start")
    axes.plot(*way[-1], "s", color=ink, markersize=5, label="end")
    _frame(axes, np.concatenate([way, goal[None] - radius, goal[None] + radius, *_corners(centres, size)]), radius)
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    axes.figure.colorbar(lines, ax=axes, label="seconds", shrink=0.7)


def _corners(centres: NDArray[Any], size: float) -> list[NDArray[Any]]:
    return [centres - size / 2, centres + size / 2]


def _frame(axes: Any, points: NDArray[Any], margin: float) -> None:
    """All of `points` (n, 2), with a metre as long upwards as to the right."""
    low, high = points.min(0) - MARGIN * margin, points.max(0) + MARGIN * margin
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal")

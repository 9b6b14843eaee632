"""Mazes against their own rules: closed, connected, judged on a part of their goals; and where walls and starts are."""

from xml.etree.ElementTree import fromstring

import numpy as np
import pytest

from envs import ant_maze, humanoid_maze, simple_maze
from envs.maze import LAYOUTS, cells, evaluation
from envs.physics.model import add_walls

PATH = {"u": 7, "u2": 9, "u3": 11, "u4": 11, "u5": 17, "u6": 15, "u7": 13}  # cells of each U that are no wall


def grid(layout: str) -> np.ndarray:
    return np.array([list(row) for row in LAYOUTS[layout].split("/")])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_maze_is_closed_has_one_start_and_a_way_to_each_goal(layout):
    maze = grid(layout)
    assert (np.concatenate([maze[0], maze[-1], maze[:, 0], maze[:, -1]]) == "#").all()
    assert (maze == "R").sum() == 1 and set(np.unique(maze)) <= set("#RG.")
    reached, frontier = set(), {tuple(map(int, np.argwhere(maze == "R")[0]))}
    while frontier:
        reached |= frontier
        around = {(x + dx, y + dy) for x, y in frontier for dx, dy in ((0, 1), (1, 0), (0, -1), (-1, 0))}
        frontier = {cell for cell in around - reached if maze[cell] != "#"}
    assert {tuple(map(int, cell)) for cell in np.argwhere(maze == "G")} <= reached


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name.endswith("_eval")])
def test_a_maze_is_judged_on_a_part_of_its_goals_without_the_nearest(layout):
    trained, judged = grid(layout.removesuffix("_eval")), grid(layout)
    np.testing.assert_array_equal(trained == "#", judged == "#")
    assert set(map(tuple, np.argwhere(judged == "G"))) < set(map(tuple, np.argwhere(trained == "G")))
    start = np.argwhere(judged == "R")[0]
    assert np.abs(np.argwhere(judged == "G") - start).sum(axis=1).min() > 1


def test_a_u_is_a_path_as_long_as_its_name_says_and_bigger_mazes_have_their_goals():
    assert {name: int((grid(name) != "#").sum()) for name in PATH} == PATH
    assert [len(cells(name, "G", 1.0)) for name in ("u", "u_eval", "u4", "u4_eval")] == [6, 3, 10, 4]
    assert [len(cells(name, "G", 1.0)) for name in ("big", "big_eval", "hardest")] == [25, 9, 45]


def test_cells_lie_at_row_and_column_times_their_size():
    np.testing.assert_array_equal(cells("u", "R", 4.0), [[4, 4]])
    np.testing.assert_array_equal(cells("u_eval", "G", 4.0), [[12, 4], [12, 8], [12, 12]])
    np.testing.assert_array_equal(cells("u4", "R", 2.0), [[4, 2]])


def test_walls_are_boxes_as_wide_as_a_cell_and_half_as_high():
    root = fromstring("<mujoco><worldbody/></mujoco>")
    add_walls(root, "u", 4.0)
    walls = root.findall("worldbody/geom")
    assert len(walls) == 18 and {wall.get("size") for wall in walls} == {"2.0 2.0 1.0"}
    places = {tuple(map(float, wall.attrib["pos"].split())) for wall in walls}
    assert places == {(4.0 * x, 4.0 * y, 1.0) for x, y in np.argwhere(grid("u") == "#")}


@pytest.mark.parametrize("kind", [ant_maze, humanoid_maze, simple_maze])
def test_a_policy_is_judged_in_the_layout_s_own_evaluation(kind):
    assert kind.Spec(layout="u").evaluation().layout == "u_eval"
    assert kind.Spec(layout="big").evaluation().layout == "big_eval"
    assert kind.Spec(layout="big_eval").evaluation().layout == "big_eval"
    assert evaluation("hardest") == "hardest"


def test_every_layout_of_the_papers_has_a_kind_that_takes_it():
    assert all(ant_maze.Spec(layout=layout).layout == layout for layout in LAYOUTS)


@pytest.mark.parametrize(("kind", "size"), [("ant-maze", 4.0), ("simple-maze", 4.0), ("humanoid-maze", 2.0)])
def test_goals_are_centers_of_goal_cells(kind, size, running):
    obs = running(kind).reset()
    goals = {tuple(goal) for goal in obs[:, running(kind).spec.contract.state_size :][:, :2].tolist()}
    assert goals <= {tuple(cell) for cell in cells("u", "G", size).tolist()} and len(goals) == 6


def test_the_ball_of_the_simple_maze_starts_in_its_cell_and_is_pushed_with_five_newtons_a_kilogram(running):
    env = running("simple-maze")
    start, after = env.reset(), env.after(1.0)
    np.testing.assert_array_equal(start[:, :2], np.full((len(start), 2), 4.0))
    assert start[:, 2:4].std() == pytest.approx(0.1, rel=0.3)
    speed = start[:, 2:4] + 5 * 0.05
    np.testing.assert_allclose(after[:, 2:4], speed, atol=0.02)
    np.testing.assert_allclose(after[:, :2], 4 + 0.05 * (start[:, 2:4] + speed) / 2, atol=0.02)

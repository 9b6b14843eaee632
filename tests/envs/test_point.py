"""The point maze: closed forms of its motion, and walls that hold."""

import numpy as np
import pytest
from pydantic import ValidationError

from envs.point import CLEARANCE, Points, Spec

STEP = 0.2  # the longest move: 2 cells a second for 0.1 s


def placed(layout: str, *positions: tuple[float, float]) -> Points:
    batch = Spec(layout=layout).build(len(positions))
    batch.reset(0)
    state = batch.state()
    physics = state["physics"].copy()
    physics[:, :2] = positions
    batch.restore({**state, "physics": physics})
    return batch


def test_sizes_and_start():
    spec = Spec()
    assert (spec.contract.observation_size, spec.contract.action_size, spec.evaluation()) == (6, 2, spec)
    obs = spec.build(5).reset(0)
    assert obs.shape == (5, 6) and obs.dtype == np.float32
    assert not obs[:, 2:4].any()


def test_a_free_move_is_the_action_times_speed():
    batch = placed("open", (2, 2), (2, 2))
    obs, _ = batch.step(np.array([[1, -0.5], [0, 0]]))
    np.testing.assert_allclose(obs[:, :4], [[2.2, 1.9, 2, -1], [2, 2, 0, 0]], atol=1e-6)


def test_a_wall_stops_one_axis_and_lets_the_other_slide():
    batch = placed("u", (1.3, 1.0))  # cell (2, 1), below, is wall
    obs, _ = batch.step(np.array([[1.0, 1.0]]))
    np.testing.assert_allclose(obs[0, :4], [1.5 - CLEARANCE, 1.2, 1, 2], atol=1e-6)
    obs, _ = batch.step(np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(obs[0, :4], [1.5 - CLEARANCE, 1.2, 0, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("layout", "free"),
    [
        ("u", {(1, 1), (1, 2), (2, 2), (3, 1), (3, 2)}),
        ("open", {(row, column) for row in (1, 2, 3) for column in (1, 2, 3)}),
    ],
)
def test_starts_and_goals_lie_anywhere_but_in_walls(layout: str, free: set):
    obs = Spec(layout=layout).build(2000).reset(0)
    for places in (obs[:, :2], obs[:, 4:]):
        assert {tuple(cell) for cell in np.rint(places).astype(int)} == free
        assert np.abs(places - np.rint(places)).max() <= 0.5 - CLEARANCE + 1e-6
    assert (np.rint(obs[:, :2]) != np.rint(obs[:, 4:])).any()


@pytest.mark.parametrize("layout", ["open", "u"])
def test_no_sequence_of_actions_enters_or_crosses_a_wall(layout: str):
    batch = Spec(layout=layout, episode_length=500).build(256)
    rng = np.random.default_rng(0)
    before = batch.reset(0)[:, :2]
    drift = rng.uniform(-1, 1, (256, 2))
    for step in range(400):
        if step % 20 == 0:
            drift = rng.choice([-1.0, 1.0], (256, 2))  # long pushes into corners
        after = batch.step(drift + rng.normal(0, 0.3, (256, 2)))[0][:, :2]
        corner = np.stack([after[:, 0], before[:, 1]], axis=1)  # a step goes along x first, then along y
        for begin, end in ((before, corner), (corner, after)):
            for share in (0.25, 0.5, 0.75, 1.0):
                row, column = np.rint(begin + share * (end - begin)).astype(int).T
                assert not batch.wall[row, column].any()
        assert np.abs(after - before).max() <= STEP + 1e-6
        before = after
    assert len({*map(tuple, np.rint(after).astype(int))}) > 3


def test_the_u_is_solved_by_going_round_and_not_by_going_straight():
    batch = placed("u", (1.0, 1.0))
    state = batch.state()
    state["physics"] = state["physics"].copy()
    state["physics"][:, 4:] = 3, 1
    batch.restore(state)
    straight = [batch.step(np.array([[1.0, 0.0]]))[1] for _ in range(90)]
    assert not any(facts.success.any() for facts in straight)
    batch.restore(state)
    way = [(0.0, 1.0)] * 5 + [(1.0, 0.0)] * 10 + [(0.0, -1.0)] * 5
    facts = [batch.step(np.array([move]))[1] for move in way]
    assert facts[-1].success_hard.all() and not facts[10].success_easy.any()


def test_seeds_restoring_and_broken_rows():
    spec = Spec(episode_length=5, goal_resample="episode")
    one, two, later = (spec.build(8) for _ in range(3))
    np.testing.assert_array_equal(one.reset(3), two.reset(3))
    actions = np.random.default_rng(1).uniform(-1, 1, (24, 8, 2)).astype(np.float32)
    actions[4, 2, 0] = np.nan
    for index, action in enumerate(actions):
        if index == 7:
            later.restore(one.state())
        (obs, facts), (other, _) = one.step(action), two.step(action)
        np.testing.assert_array_equal(obs, other)
        assert facts.broken.tolist() == [index == 4 and env == 2 for env in range(8)]
        if index >= 7:
            np.testing.assert_array_equal(later.step(action)[0], obs)
    assert np.isfinite(obs).all()


def test_an_unknown_layout_is_told():
    with pytest.raises(ValidationError, match="'open' or 'u'"):
        Spec(layout="maze")

"""Reacher and pusher against brax's own observations, and against the bounds of their starts and goals."""

import jax
import numpy as np
import pytest
from brax.envs.pusher import Pusher
from brax.envs.reacher import Reacher

from envs.pusher import Spec as PusherSpec

ORIGIN = np.array([-0.05, 0.45])  # y, x of brax's own object and goal


def brax_sees(env, theirs) -> np.ndarray:
    """brax's own observation of the state that the environments are in."""
    theirs.sys = env.spec.environment().system
    return np.asarray(jax.jit(jax.vmap(theirs._get_obs))(env.physics))


def test_reacher_shows_what_brax_s_does(running):
    obs, brax = running("reacher").after(0.7, -0.2), brax_sees(running("reacher"), Reacher(backend="spring"))
    np.testing.assert_allclose(obs[:, :4], brax[:, :4], atol=1e-6)
    np.testing.assert_allclose(obs[:, 7:9], brax[:, 6:8], atol=1e-6)
    np.testing.assert_allclose(obs[:, 4:7] - obs[:, 10:], brax[:, 8:], atol=1e-6)


def test_reacher_s_tip_is_where_two_links_of_10_and_11_cm_put_it(running):
    obs = running("reacher").after(1.0, 1.0)
    first = np.arctan2(obs[:, 2], obs[:, 0])
    both = first + np.arctan2(obs[:, 3], obs[:, 1])
    tip = 0.1 * np.array([np.cos(first), np.sin(first)]) + 0.11 * np.array([np.cos(both), np.sin(both)])
    np.testing.assert_allclose(obs[:, 4:6], tip.T, atol=2e-3)  # springs hold the joints, so they give a little
    np.testing.assert_allclose(obs[:, 6], 0.01, atol=2e-3)


def test_reacher_starts_near_zero_with_its_goal_in_reach(running):
    obs = running("reacher").reset()
    first, second = np.arctan2(obs[:, 2], obs[:, 0]), np.arctan2(obs[:, 3], obs[:, 1])
    assert np.abs(first).max() <= 0.1 and np.abs(second).max() <= 0.1 and np.ptp(first) > 0.15
    distance = np.linalg.norm(obs[:, 10:12], axis=1)
    assert distance.max() < 0.2 and distance.min() < 0.03 and np.median(distance) == pytest.approx(0.1, abs=0.04)
    np.testing.assert_allclose(obs[:, 12], 0.01)


def test_pusher_shows_what_brax_s_does_in_another_order(running):
    obs, brax = running("pusher").after(0.7, -0.2), brax_sees(running("pusher"), Pusher(backend="spring"))
    angles, velocities, tip, thing, goal = np.split(brax, [7, 14, 17, 20], axis=1)
    np.testing.assert_allclose(obs, np.hstack([angles, tip, thing, velocities, goal]), atol=1e-6)


def placed(env) -> tuple[np.ndarray, np.ndarray]:
    """Objects and goals (500, 2)."""
    drawn = jax.jit(jax.vmap(env.place))(jax.random.split(jax.random.PRNGKey(0), 500))
    return tuple(np.split(np.asarray(drawn), 2, axis=1))


@pytest.mark.parametrize(
    ("difficulty", "low", "high"),
    [("easy", (-0.55, -0.2), (-0.25, 0.2)), ("hard", (-0.65, -0.55), (0.35, 0.45))],
)
def test_pusher_s_goals_fill_their_box(difficulty, low, high):
    _, goal = placed(PusherSpec(difficulty=difficulty).environment())
    assert (goal >= low).all() and (goal <= high).all()
    np.testing.assert_allclose((goal.min(axis=0), goal.max(axis=0)), (low, high), atol=0.02)


def test_pusher_s_objects_fill_their_box_and_keep_clear_of_the_goal():
    env = PusherSpec().environment()
    env.goals = ((9.0, 9.0), (9.0, 9.0))
    free, _ = placed(env)
    np.testing.assert_allclose((free.min(axis=0), free.max(axis=0)), ((-0.3, -0.2), (0, 0.2)), atol=0.02)
    env.goals = ((0.0, 0.0), (0.0, 0.0))
    moved, _ = placed(env)
    distance = np.linalg.norm(free, axis=1, keepdims=True)
    np.testing.assert_allclose(moved, free * np.maximum(1, 0.17 / distance), rtol=1e-5)


def test_pusher_starts_where_it_was_placed(running):
    obs = running("pusher").reset()
    goal = obs[:, [21, 20]] - ORIGIN  # y, x
    assert ((goal >= (-0.55, -0.2)) & (goal <= (-0.25, 0.2))).all()
    np.testing.assert_allclose(obs[:, [12, 22]], np.tile([-0.275, -0.323], (len(obs), 1)), atol=1e-5)
    assert np.abs(obs[:, 13:20]).max() <= 0.005 and not obs[:, :7].any()


def test_pusher_succeeds_within_10_cm_and_hard_within_5(running):
    obs = np.zeros((3, 23), np.float32)
    obs[:, 10] = (0.04, 0.09, 0.11)
    _, success, easy, hard = running("pusher").spec.judge(obs)
    assert success.tolist() == easy.tolist() == [True, True, False] and hard.tolist() == [True, False, False]

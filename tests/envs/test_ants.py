"""The ant's tasks against their tables: coordinates, starts, goals, and when the ant has fallen."""

from types import SimpleNamespace

import numpy as np
import pytest

from envs.physics.ant import AntEnv

POSE = [0, 0, 0.55, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1]  # q of brax's ant: root, then hip and ankle of each leg
KINDS = ["ant", "ant-maze", "ant-ball", "ant-push"]


@pytest.mark.parametrize("kind", KINDS)
def test_starts_are_brax_s_pose_with_uniform_noise_in_q_and_normal_in_qd(kind, running):
    pose = np.array(POSE, np.float32)
    pose[:3] = {"ant-maze": (4, 4, 0.55), "ant-push": (0, 0, 0.75)}.get(kind, (0, 0, 0.55))
    obs = running(kind).reset()
    noise = (obs[:, :15] - pose)[:, [0, 1, 2, *range(7, 15)]]  # MuJoCo brings the quaternion back to length 1
    assert np.abs(noise).max() <= 0.1 + 1e-6
    assert np.abs(noise).max(axis=0).min() > 0.08  # of 32 draws in each coordinate
    assert obs[:, 15:29].std() == pytest.approx(0.1, rel=0.15)
    assert np.abs(obs[:, 15:29].mean()) < 0.02


def test_the_ant_s_goal_is_on_a_circle_of_10_m(running):
    goals = running("ant").reset()[:, -2:]
    np.testing.assert_allclose(np.linalg.norm(goals, axis=1), 10, rtol=1e-6)
    assert {(x > 0, y > 0) for x, y in goals} == {(a, b) for a in (True, False) for b in (True, False)}


def test_the_ball_starts_a_fifth_of_the_way_to_its_goal_plus_an_offset(running):
    obs = running("ant-ball").reset()
    ball, goal = obs[:, 29:31], obs[:, 31:]
    np.testing.assert_allclose(np.linalg.norm(goal, axis=1), 5, rtol=1e-6)
    offset = ball - 0.2 * goal
    assert (np.abs(offset[:, 0]) <= 1).all() and offset[:, 0].std() > 0.5
    np.testing.assert_allclose(offset[:, 1], goal[:, 1] / 5, atol=1e-5)


def test_the_block_fills_the_middle_and_goals_are_beyond_it(running):
    obs = running("ant-push").reset()
    assert np.abs(obs[:, 29:31] - 8).max() <= 0.1 + 1e-5
    corner = np.sort(obs[:, 31:] // 8 * 8, axis=1)
    np.testing.assert_array_equal(corner, np.tile([8, 16], (len(obs), 1)))
    assert {tuple(goal // 8) for goal in obs[:, 31:]} == {(1, 2), (2, 1)}
    assert (obs[:, 31:] % 8 < 2).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_goal_is_that_of_the_torso_or_of_the_ball_and_stays(kind, running):
    env = running(kind)
    start, later = env.reset(), env.after(0.5, -0.5)
    np.testing.assert_allclose(later[:, -2:], start[:, -2:], atol=1e-5)
    contract = env.spec.contract
    bodies = {"ant-ball": -2}.get(kind, 0)  # the ball is last but one, the torso first
    lag = {"ant-push": 0.02}.get(kind, 1e-6)  # m; MuJoCo's places are those at the start of its last 0.01 s
    np.testing.assert_allclose(later[:, contract.goal_index], env.physics.x.pos[:, bodies, :2], atol=lag)


@pytest.mark.parametrize("kind", KINDS)
def test_the_torso_moves_by_its_velocity(kind, running):
    """Velocities are in rad/s and m/s: over a short step the torso's height changes by about its mean velocity."""
    env = running(kind)
    before = env.reset()
    after = env.after(0.0)
    moved = after[:, 2] - before[:, 2]
    expected = 0.05 * (before[:, 17] + after[:, 17]) / 2
    assert np.corrcoef(moved, expected)[0, 1] > 0.5


@pytest.mark.parametrize(("z", "fallen"), [(0.19, True), (0.21, False), (0.99, False), (1.01, True)])
def test_the_ant_has_fallen_outside_its_range_of_heights(z, fallen):
    physics = SimpleNamespace(x=SimpleNamespace(pos=np.array([[9.0, 9.0, z], [0, 0, 0]])))
    assert bool(AntEnv.fallen(SimpleNamespace(), physics)) is fallen


def test_success_is_half_a_meter_and_easy_two(running):
    spec = running("ant").spec
    obs = np.zeros((4, 31), np.float32)
    obs[:, 29] = (0.49, 0.51, 1.99, 2.01)
    distance, success, easy, _ = spec.judge(obs)
    np.testing.assert_allclose(distance, obs[:, 29])
    assert success.tolist() == [True, False, False, False] and easy.tolist() == [True, True, True, False]


def test_equal_ants_move_alike_under_equal_actions_and_apart_under_others(running):
    env = running("ant")
    assert np.array_equal(env.after(1.0), env.after(1.0))
    assert not np.allclose(env.after(1.0)[:, 7:15], env.after(-1.0)[:, 7:15], atol=0.05)


def test_the_model_is_brax_s_with_a_target_that_nothing_touches(running):
    model = running("ant").spec.environment().system.mj_model
    assert (model.nq, model.nv, model.nu) == (17, 16, 8)
    target = model.geom("target")
    assert target.contype[0] == target.conaffinity[0] == 0 and model.body("target").mass[0] == 1

"""The humanoid against its table, and its observation against brax's own."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from brax.envs.humanoid import Humanoid

from envs.humanoid import Spec
from envs.physics.humanoid import HumanoidEnv

Q, QD, LINKS = 26, 25, 12


@pytest.fixture(scope="module")
def env(running):
    return running("humanoid")


def test_it_starts_upright_and_still_1_to_5_m_from_its_goal(env):
    obs = env.reset()
    pose = np.zeros(Q - 2)
    pose[2:4] = 1.4, 1
    np.testing.assert_allclose(obs[:, : Q - 2], np.tile(pose, (len(obs), 1)))
    assert not obs[:, Q : Q + QD].any()
    goal = obs[:, 268:]
    np.testing.assert_allclose(obs[:, Q - 2 : Q], goal[:, :2], rtol=1e-6)  # the state shows the goal, as published
    distance = np.linalg.norm(goal[:, :2], axis=1)
    assert (distance >= 1).all() and (distance < 5).all() and np.ptp(distance) > 3
    assert (goal[:, 2] == 1.25).all()


def test_the_observation_is_brax_s_own_with_the_goal_behind(env):
    control = np.float32(0.5 * 0.4)
    obs, physics = env.after(-0.3, 0.5), env.physics
    brax = Humanoid(backend="spring", exclude_current_positions_from_observation=False)
    brax.sys = env.spec.environment().system
    observe = jax.jit(jax.vmap(lambda state: brax._get_obs(state, np.full(17, control))))
    np.testing.assert_allclose(obs[:, :268], observe(physics.state), rtol=1e-4, atol=1e-4)


def test_an_action_is_four_tenths_of_its_gear_as_torque(env):
    torques = env.after(1.0)[:, 268 - QD : 268]
    expected = [0] * 6 + [350 * 0.4] * 11 + [100 * 0.4] * 6 + [0] * 2
    np.testing.assert_allclose(torques, np.tile(expected, (len(torques), 1)), rtol=1e-5)
    assert not env.reset()[:, 268 - QD : 268].any()


def test_masses_are_those_of_the_model(env):
    masses = env.reset()[0, Q + QD : Q + QD + LINKS * 10].reshape(LINKS, 10)[:, 9]
    model = env.spec.environment().system.mj_model
    np.testing.assert_allclose(masses, model.body_mass[1:], rtol=1e-6)
    assert masses[-1] == 1  # the goal's


@pytest.mark.parametrize(("z", "fallen"), [(0.99, True), (1.01, False), (1.99, False), (2.01, True)])
def test_it_has_fallen_outside_its_range_of_heights(z, fallen):
    physics = SimpleNamespace(state=SimpleNamespace(x=SimpleNamespace(pos=np.array([[0, 0, z]]))))
    assert bool(HumanoidEnv.fallen(SimpleNamespace(), physics)) is fallen


@pytest.mark.parametrize("control_dt", [0.03, 0.015])
def test_a_step_takes_the_time_that_the_spec_says(control_dt):
    spec = Spec(control_dt=control_dt)
    env = spec.environment()
    assert float(env.system.opt.timestep) * env.frames == pytest.approx(control_dt) == spec.contract.control_dt


def test_the_maze_is_entered_at_its_start_cell(running):
    obs = running("humanoid-maze").reset()
    np.testing.assert_allclose(obs[:, :3], np.tile([2, 2, 1.4], (len(obs), 1)))

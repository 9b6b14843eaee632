"""What every environment keeps to, whatever moves in it: spaces, seeds, ends of episodes, rewards, one compilation."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from orchestrator import kinds
from orchestrator.errors import InputError

LENGTH = 4  # steps of an episode


@pytest.fixture(params=kinds.names("env"), scope="module")
def env(request, running):
    return running(request.param)


@pytest.fixture(scope="module")
def episode(env):
    """Observations at the start (N, S + G), then what six steps under actions drawn from a seed return."""
    return _roll(env, seed=3)


def _roll(env, seed):
    draw = np.random.default_rng(seed)
    shape = env.envs.action_space.shape
    start = env.reset(seed)
    return start, [env.envs.step(draw.uniform(-1, 1, shape).astype(np.float32)) for _ in range(LENGTH + 2)]


def test_observations_and_actions_have_the_sizes_of_the_contract(env, episode):
    contract = env.spec.contract
    assert env.envs.single_observation_space.shape == (contract.state_size + len(contract.goal_index),)
    assert env.envs.single_action_space.shape == (contract.action_size,)
    for obs in (episode[0], *(step[0] for step in episode[1])):
        assert env.envs.observation_space.contains(obs)
    assert env.envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_equal_seeds_give_equal_episodes_and_others_give_others(env, episode):
    start, steps = _roll(env, seed=3)
    np.testing.assert_array_equal(start, episode[0])
    for (obs, reward, *_), (obs_before, reward_before, *_) in zip(steps, episode[1], strict=True):
        np.testing.assert_array_equal(obs, obs_before)
        np.testing.assert_array_equal(reward, reward_before)
    assert not np.array_equal(env.reset(4), start)
    assert not np.array_equal(env.envs.reset()[0], env.envs.reset()[0])


def test_an_episode_ends_at_its_length_and_the_next_begins_in_the_same_step(env, episode):
    start, steps = episode
    obs, _, terminated, truncated, infos = steps[LENGTH - 1]
    assert not any((step[3] & ~step[2]).any() for step in steps[: LENGTH - 1])
    assert (truncated | terminated).any()
    for index in np.flatnonzero(truncated):
        np.testing.assert_array_equal(obs[index], start[index])  # goal_resample = "never"
        assert infos["final_obs"][index].shape == obs[index].shape
        assert not np.array_equal(infos["final_obs"][index], obs[index])
    np.testing.assert_array_equal(infos["_final_obs"], truncated | terminated)


def test_the_reward_is_success_in_the_state_that_the_action_led_to(env, episode):
    contract = env.spec.contract
    for obs, reward, _, _, infos in episode[1]:
        ends = infos.get("final_obs", np.full(len(obs), None))
        reached = np.stack([obs[i] if end is None else end for i, end in enumerate(ends)])
        distance, success, easy, hard = env.spec.judge(reached)
        np.testing.assert_array_equal(reward, success.astype(float))
        np.testing.assert_allclose(infos["distance"], distance, rtol=1e-5, atol=1e-6)
        assert (easy | ~success).all() and (success | ~hard).all()
        assert not infos["broken"].any()
    assert contract.hard <= contract.radius <= contract.easy


def test_reset_and_step_are_compiled_once(env, episode, traces):
    env.reset(5)
    _roll(env, seed=6)
    counted = {name: count for (kind, name), count in traces.items() if kind == env.spec.kind}
    assert counted in ({}, {"reset": 1, "step": 1})  # {}: it runs in numpy


def test_a_policy_is_judged_in_an_environment_of_the_same_sizes(env):
    assert env.spec.evaluation().contract == env.spec.contract


def test_an_unknown_environment_is_answered_with_those_there_are():
    with pytest.raises(
        InputError, match=r"no env of kind 'ant_maze'; did you mean 'ant-maze'\? \(there are: ant, ant-b"
    ):
        kinds.find("env", "ant_maze")


def test_a_layout_that_is_not_there_is_one_line():
    with pytest.raises(ValueError, match="layout"):
        kinds.parse("env", {"kind": "ant-maze", "layout": "u9"})
    with pytest.raises(ValueError, match=r"give 0\.03, as published, or 0\.015"):
        kinds.parse("env", {"kind": "humanoid", "control_dt": 0.02})

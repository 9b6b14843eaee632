"""What rollouts return against the same environments stepped by hand, in numpy and in jax."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from envs.base import Contract, JaxSpec
from envs.functional import JaxEnv
from envs.point import Spec as Point
from models.resnet_spec import ResnetSpec
from models.topology.ancre import Spec as Ancre
from orchestrator.crl import rollout

MODEL = ResnetSpec(num_blocks=2, width=16)
N, T = 5, 30


class Drift(JaxEnv):
    """A point that goes where it is pushed; it falls far out, and is no number where x > 0.9."""

    def reset(self, key):
        return jax.random.uniform(key, (4,), minval=-0.5, maxval=0.5)

    def step(self, physics, action):
        position = physics[:2] + 0.3 * action
        return physics.at[:2].set(jnp.where(position[0] > 0.9, jnp.nan, position))

    def observe(self, physics):
        return physics

    def fallen(self, physics):
        return physics[1] > 0.8


class DriftSpec(JaxSpec):
    kind: Literal["drift"] = "drift"
    episode_length: int = 12

    @property
    def contract(self):
        return Contract(2, (0, 1), 2, radius=0.3, easy=0.6, hard=0.1, control_dt=1.0)

    def environment(self):
        return Drift()


SPECS = [Point(layout="open", episode_length=12, goal_resample="episode"), DriftSpec(goal_resample="episode")]
each = pytest.mark.parametrize("env", SPECS, ids=["numpy", "jax"])


def build(env, seed=3, num_envs=N):
    torch.manual_seed(0)
    rule = env.contract
    actor = MODEL.actor(rule.observation_size, rule.action_size, Ancre(temperature=0.5))
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    return actor, rollout.build(env, MODEL, actor, num_envs, seed)


def by_hand(env, seed, rows):
    """The rows (T, N, F) that the actions in `rows` lead to."""
    S, A = env.contract.state_size, env.contract.action_size
    batch, found = env.build(rows.shape[1]), []
    if isinstance(env, JaxSpec):
        step = jax.jit(batch.step)
        state = batch.reset(jax.random.split(jax.random.PRNGKey(seed))[0])
        obs, episode = np.array(state.obs), np.array(state.episode)
    else:
        obs, episode = batch.reset(seed), batch.episode
    for row in rows:
        action = row[:, S : S + A]
        if isinstance(env, JaxSpec):
            state, report = step(state, jnp.asarray(action))
            after, following = np.array(state.obs), np.array(state.episode)
        else:
            after, report = batch.step(action)
            following = batch.episode
        found.append(np.column_stack([obs[:, :S], action, episode, ~np.array(report.broken)]))
        obs, episode = after, following
    return np.array(found, np.float32)


@each
def test_rows_are_states_actions_episodes_and_what_broke(env):
    _, ours = build(env)
    parts = [ours.collect(T) for _ in range(2)]
    rows = np.concatenate([part.numpy() for part, _ in parts])
    assert rows.shape == (2 * T, N, env.contract.state_size + 2 + 2)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, by_hand(env, 3, rows), atol=1e-6)
    assert rows[..., -2].max() >= 4  # episodes ended
    assert sum(broken for _, broken in parts) == (rows[..., -1] == 0).sum()
    assert (rows[..., -1] == 0).any() == isinstance(env, DriftSpec)


@each
def test_actions_follow_the_tanh_gaussian_of_the_actor(env):
    actor, ours = build(env, num_envs=4000)
    rows, _ = ours.collect(1)
    state, action = rows[0, :, : env.contract.state_size], rows[0, :, env.contract.state_size : -2]
    _, other = build(env, num_envs=4000)
    goal = observed(other)[:, env.contract.state_size :]
    with torch.no_grad():
        mean, log_std = actor(torch.cat((state, torch.from_numpy(goal)), 1))
    noise = (torch.atanh(action.double().clamp(-1 + 1e-7, 1 - 1e-7)) - mean) / log_std.exp()
    noise = noise[action.abs().amax(1) < 0.9999]
    assert noise.mean(0).abs().max() < 0.1
    assert (noise.std(0) - 1).abs().max() < 0.1


def observed(ours):
    return np.array(ours._batch.observation if hasattr(ours._batch, "observation") else ours._state.obs)


@each
def test_it_goes_on_exactly_from_a_saved_state(env):
    _, ours = build(env)
    ours.collect(7)
    state = {name: tensor.clone() for name, tensor in ours.state().items()}
    straight = ours.collect(T)[0].clone()
    _, other = build(env, seed=99)
    other.collect(3)
    other.restore(state)
    assert torch.equal(other.collect(T)[0], straight)


@each
def test_the_seed_decides_the_rows(env):
    first, again, other = (build(env, seed)[1].collect(T)[0].numpy() for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@each
def test_an_evaluation_is_one_episode_of_the_mean_action(env):
    actor, ours = build(env)
    outcome = ours.evaluate(seed=11, num_envs=64)
    batch = env.build(64)
    if isinstance(env, JaxSpec):
        step, state = jax.jit(batch.step), batch.reset(jax.random.PRNGKey(11))
        obs = np.array(state.obs)
    else:
        obs = batch.reset(11)
    active, near, distance = np.ones(64, bool), np.zeros((3, 64), int), np.zeros(64)
    for _ in range(env.episode_length):
        with torch.no_grad():
            action = torch.tanh(actor(torch.from_numpy(obs))[0]).numpy()
        if isinstance(env, JaxSpec):
            state, report = step(state, jnp.asarray(action))
            obs = np.array(state.obs)
        else:
            obs, report = batch.step(action)
        for number, success in enumerate((report.success, report.success_easy, report.success_hard)):
            near[number] += active & np.array(success)
        distance[active] = np.array(report.distance)[active]
        active &= ~np.array(report.done)
    assert np.array_equal(outcome.near, near)
    np.testing.assert_allclose(outcome.final_distance, distance, atol=1e-4)
    metrics = rollout.summary([outcome])
    assert metrics["eval/time_at_goal"] == near[0].mean()
    assert metrics["eval/success_any"] == (near[0] > 0).mean()
    assert metrics["eval/success_easy"] == near[1].mean()
    assert metrics["eval/success_hard"] == near[2].mean()


def test_jax_compiles_each_function_once():
    actor, ours = build(SPECS[1])
    ours.collect(T)
    ours.evaluate(0, 16)
    assert ours.traces == 2
    for step in range(3):
        with torch.no_grad():
            for parameter in actor.parameters():
                parameter += 0.01
        ours.collect(T)
        ours.evaluate(step, 16)
    ours.restore(ours.state())
    ours.collect(T)
    assert ours.traces == 2

"""Episodes in numpy, on a task whose every state is known: a counter that its action moves."""

from typing import Any, Literal

import numpy as np
import pytest

from envs.base import Contract, GoalEnvSpec
from envs.host import Array, Flags, HostBatch, Observation


class Counter(GoalEnvSpec):
    kind: Literal["counter"] = "counter"

    @property
    def contract(self) -> Contract:
        return Contract(1, (0,), 1, radius=0.6, easy=1.6, hard=0.1, control_dt=1.0)

    def build(self, num_envs: int) -> "Counters":
        return Counters(self, num_envs)


class Counters(HostBatch):
    """State (value, goal): the value starts at a random whole number below 1000 and the goal lies 3 above it."""

    def first(self, rng: np.random.Generator, count: int) -> Array:
        value = rng.integers(1000, size=(count, 1)).astype(float)
        return np.hstack([value, value + 3])

    def advance(self, physics: Array, actions: Array) -> Array:
        return physics + actions * [1, 0]

    def observe(self, physics: Array) -> Observation:
        return physics.astype(np.float32)

    def fallen(self, physics: Array) -> Flags:
        return physics[:, 0] < physics[:, 1] - 4.5  # two steps down from the start


def up(n: int) -> np.ndarray:
    return np.ones((n, 1), dtype=np.float32)


def test_an_episode_ends_at_its_length_and_the_next_begins_in_the_same_step():
    batch = Counter(episode_length=4).build(3)
    first = batch.reset(0)
    for step in range(1, 4):
        obs, facts = batch.step(up(3))
        np.testing.assert_array_equal(obs[:, 0], first[:, 0] + step)
        assert not facts.done.any()
        np.testing.assert_array_equal(batch.elapsed, [step] * 3)
    obs, facts = batch.step(up(3))
    np.testing.assert_array_equal(obs, first)
    np.testing.assert_array_equal(facts.final_obs[:, 0], first[:, 0] + 4)
    assert facts.truncated.all() and not facts.terminated.any() and not facts.broken.any()
    np.testing.assert_array_equal(batch.elapsed, [0] * 3)
    np.testing.assert_array_equal(batch.episode, [1] * 3)


def test_success_is_of_the_step_that_the_action_led_to():
    batch = Counter().build(2)
    batch.reset(1)
    seen = [batch.step(up(2))[1] for _ in range(4)]
    assert [float(facts.distance[0]) for facts in seen] == [2, 1, 0, 1]
    assert [bool(facts.success[0]) for facts in seen] == [False, False, True, False]
    assert [bool(facts.success_easy[0]) for facts in seen] == [False, True, True, True]
    assert [bool(facts.success_hard[0]) for facts in seen] == [False, False, True, False]


def test_a_fallen_environment_is_put_back_alone():
    batch = Counter().build(2)
    first = batch.reset(0)
    actions = np.array([[-1.0], [1.0]])
    batch.step(actions)
    obs, facts = batch.step(actions)
    assert facts.terminated.tolist() == [True, False] and not facts.truncated.any()
    np.testing.assert_array_equal(obs[:, 0], first[:, 0] + [0, 2])
    assert batch.episode.tolist() == [1, 0] and batch.elapsed.tolist() == [0, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_broken_state_is_told_put_back_and_never_shown(bad: float):
    batch = Counter().build(2)
    first = batch.reset(0)
    before, _ = batch.step(up(2))
    obs, facts = batch.step(np.array([[bad], [1.0]]))
    assert facts.broken.tolist() == facts.terminated.tolist() == [True, False]
    np.testing.assert_array_equal(facts.final_obs[0], before[0])
    assert np.isfinite(facts.distance).all()
    np.testing.assert_array_equal(obs[:, 0], first[:, 0] + [0, 2])


def test_a_state_that_overflows_an_observation_is_broken():
    class Overflow(Counters):
        def advance(self, physics: Array, actions: Array) -> Array:
            return physics + np.array([[1e200, 0], [1, 0]])

        def observe(self, physics: Array) -> Observation:
            with np.errstate(over="ignore"):
                return physics.astype(np.float32)

    batch = Overflow(Counter(), 2)
    first = batch.reset(0)
    obs, facts = batch.step(up(2))
    assert facts.broken.tolist() == [True, False]
    np.testing.assert_array_equal(obs[0], first[0])


def test_actions_outside_the_box_count_as_its_edge():
    batch = Counter().build(2)
    first = batch.reset(0)
    obs, _ = batch.step(np.array([[7.0], [-3.0]]))
    np.testing.assert_array_equal(obs[:, 0], first[:, 0] + [1, -1])


def test_never_keeps_each_start_and_goal():
    batch = Counter(episode_length=1).build(4)
    first = batch.reset(5)
    assert len({*first[:, 0]}) == 4
    for _ in range(5):
        obs, _ = batch.step(up(4))
        np.testing.assert_array_equal(obs, first)


def test_episode_draws_from_so_many_starts_of_each_environment():
    batch = Counter(episode_length=1, goal_resample="episode", starts=3).build(2)
    batch.reset(0)
    seen = np.stack([batch.step(up(2))[0] for _ in range(200)])
    assert [len({*seen[:, env, 0]}) for env in range(2)] == [3, 3]
    assert not {*seen[:, 0, 0]} & {*seen[:, 1, 0]}
    values, counts = np.unique(seen[:, 0, 0], return_counts=True)
    assert len(values) == 3 and counts.min() > 40  # 67 expected, 5 deviations are 33


@pytest.mark.parametrize("resample", ["never", "episode"])
def test_equal_seeds_give_equal_runs_and_a_restored_batch_goes_on_exactly(resample: Any):
    spec = Counter(episode_length=3, goal_resample=resample)
    straight, again, later = (spec.build(4) for _ in range(3))
    np.testing.assert_array_equal(straight.reset(7), again.reset(7))
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 4, 1))
    for action in actions[:8]:
        np.testing.assert_array_equal(straight.step(action)[0], again.step(action)[0])
    np.testing.assert_array_equal(later.restore(straight.state()), straight.observation)
    for action in actions[8:]:
        (obs, facts), (other, told) = straight.step(action), later.step(action)
        np.testing.assert_array_equal(obs, other)
        for one, two in zip(facts, told, strict=True):
            np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(straight.episode, later.episode)
    assert (spec.build(4).reset(8) != spec.build(4).reset(7)).any()


def test_a_saved_state_does_not_change_later():
    batch = Counter(episode_length=2).build(2)
    batch.reset(0)
    state = batch.state()
    kept = {name: value.copy() for name, value in state.items()}
    for _ in range(3):
        batch.step(up(2))
    for name, value in state.items():
        np.testing.assert_array_equal(value, kept[name])


def test_a_state_of_another_size_is_refused_in_one_line():
    batch, other = Counter().build(2), Counter().build(3)
    batch.reset(0)
    other.reset(0)
    with pytest.raises(ValueError, match="a saved state of 2 environments with 2 numbers each; counter has 3 here"):
        other.restore(batch.state())

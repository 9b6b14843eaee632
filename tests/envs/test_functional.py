"""Episodes of a counter that is known in closed form: their ends, the starts of the next, and states that break."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.base import Contract, JaxSpec
from envs.functional import Compiled, JaxBatch, JaxEnv

N = 3


class Counter(JaxEnv):
    """State: a start drawn in [0, 1), and the sum of actions since. An action of 9 breaks it, a sum above 5 ends it."""

    def reset(self, key):
        return {"start": jax.random.uniform(key), "sum": jnp.float32(0), "goal": jnp.float32(2)}

    def step(self, physics, action):
        moved = jnp.where(action[0] == 9, jnp.nan, physics["sum"] + action[0])
        return physics | {"sum": moved}

    def observe(self, physics):
        return jnp.stack([physics["start"], physics["sum"], physics["goal"]])

    def fallen(self, physics):
        return physics["sum"] > 5


class Spec(JaxSpec):
    kind: Literal["counter"] = "counter"

    @property
    def contract(self):
        return Contract(2, (1,), action_size=1, radius=1.0, easy=2.0, hard=0.25, control_dt=1.0)

    def environment(self) -> Any:
        return Counter()


def roll(actions: list[list[float]], **fields: Any) -> tuple[Any, list[Any], list[Any]]:
    """The first state, then the states and reports after each of `actions`, one per environment."""
    batch = Spec(**fields).build(N)
    step = jax.jit(batch.step)
    state = first = jax.jit(batch.reset)(jax.random.PRNGKey(0))
    states, reports = [], []
    for row in actions:
        state, report = step(state, jnp.array(row, jnp.float32)[:, None])
        states.append(state)
        reports.append(report)
    return first, states, reports


def test_an_episode_is_cut_at_its_length_unless_it_ended_by_itself():
    _, states, reports = roll([[1, 1, 3], [1, 1, 3]], episode_length=2)
    assert reports[0].done.tolist() == [False, False, False]
    assert reports[1].truncated.tolist() == [True, True, False]
    assert reports[1].terminated.tolist() == [False, False, True]
    assert reports[1].final_obs[:, 1].tolist() == [2, 2, 6]
    assert states[1].obs[:, 1].tolist() == [0, 0, 0]
    assert states[0].elapsed.tolist() == [1, 1, 1] and states[1].elapsed.tolist() == [0, 0, 0]
    assert states[1].episode.tolist() == [1, 1, 1]


def test_success_is_that_of_the_last_state_of_the_episode():
    _, _, reports = roll([[0, 1.5, 1.9]], episode_length=1)
    assert reports[0].distance.tolist() == pytest.approx([2, 0.5, 0.1])
    assert reports[0].success.tolist() == [False, True, True]
    assert reports[0].success_easy.tolist() == [False, True, True]
    assert reports[0].success_hard.tolist() == [False, False, True]


def test_a_broken_state_ends_the_episode_and_never_shows():
    first, states, reports = roll([[2, 2, 2], [9, 0, 0]])
    assert reports[1].broken.tolist() == [True, False, False]
    assert reports[1].terminated.tolist() == [True, False, False] and not reports[1].truncated.any()
    assert reports[1].final_obs[0].tolist() == states[0].obs[0].tolist()
    assert reports[1].success.tolist() == [False, True, True]
    assert states[1].obs[0].tolist() == first.obs[0].tolist()
    assert states[1].episode.tolist() == [1, 0, 0]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((states[1], reports[1])))


def test_never_keeps_one_start_per_environment():
    first, states, _ = roll([[6] * N] * 5)
    starts = first.obs[:, 0].tolist()
    assert len(set(starts)) == N
    assert all(state.obs[:, 0].tolist() == starts for state in states)


def test_episode_draws_among_the_starts_of_its_own_environment():
    first, states, _ = roll([[6] * N] * 60, goal_resample="episode", starts=4)
    drawn = np.stack([state.obs[:, 0] for state in states])  # (60, N)
    for column, pool in zip(drawn.T, np.asarray(first.starts[1][:, :, 0]), strict=True):
        assert set(column) == set(pool)  # 60 draws miss one of 4 with a probability of 1e-7
    assert not (drawn[:, 0] == drawn[:, 1]).any()


def test_within_an_episode_nothing_is_drawn_again():
    first, states, _ = roll([[1] * N] * 4, goal_resample="episode")
    assert all(state.obs[:, 0].tolist() == first.obs[:, 0].tolist() for state in states)


@pytest.mark.parametrize("fields", [{}, {"goal_resample": "episode"}])
def test_one_compilation_serves_the_state_of_reset_and_of_step_and_of_a_scan(fields):
    batch, traced = Spec(**fields).build(N), []
    step = jax.jit(lambda state, actions: traced.append(1) or batch.step(state, actions))
    state = jax.jit(batch.reset)(jax.random.PRNGKey(0))
    for _ in range(3):
        state, _ = step(state, jnp.ones((N, 1)))
    state, _ = jax.lax.scan(batch.step, state, jnp.ones((4, N, 1)))
    step(state, jnp.ones((N, 1)))
    assert len(traced) == 1
    assert state.elapsed.dtype == state.episode.dtype == jnp.int32 and state.obs.dtype == jnp.float32


def test_physics_is_computed_with_full_precision():
    spec, seen = Spec(), []

    class Multiplies(Counter):
        def step(self, physics, action):
            seen.append(jax.config.jax_default_matmul_precision)
            return super().step(physics, action)

    batch = JaxBatch(spec, Multiplies(), N)
    batch.step(batch.reset(jax.random.PRNGKey(0)), jnp.ones((N, 1)))
    assert seen == ["highest"] and jax.config.jax_default_matmul_precision is None


def test_a_step_before_the_reset_is_refused():
    with pytest.raises(RuntimeError, match="reset the environments before the first step"):
        Compiled(Spec().build(N)).step(np.ones((N, 1)))


def test_a_goal_index_outside_the_state_is_refused():
    with pytest.raises(ValueError, match="goal_index 2: a state has coordinates 0 to 1"):
        Contract(2, (0, 2), action_size=1, radius=1.0, easy=1.0, hard=1.0, control_dt=1.0)

"""The buffer against the hindsight distribution written out as a matrix, and what it holds against a plain list."""

import io
import math
from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.base import Contract
from orchestrator.crl.replay import Replay, hindsight, row_size
from orchestrator.crl.spec import TrainSpec

# A state is (environment, step, unique number); its goal is the unique number. The action repeats it, negated.
CONTRACT = Contract(3, (2,), 1, radius=0.5, easy=1.0, hard=0.1, control_dt=0.1)
ENVS, SLOTS, WINDOW, GAMMA = 3, 24, 9, 0.8


def replay(slots: int = SLOTS, envs: int = ENVS, window: int = WINDOW, gamma: float = GAMMA) -> Replay:
    train = TrainSpec(
        num_envs=envs,
        unroll=1,
        slots=slots,
        window=window,
        prefill=window + 1,
        batch=2,
        env_steps=10**4,
        eval_every=10**4,
    )
    return Replay(train, CONTRACT, gamma)


def history(steps: int, envs: int, seed: int, broken: float = 0.15) -> torch.Tensor:
    """Rows (T, N, F): episodes of 1 to 13 steps, some of which end because they broke."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.zeros(steps, envs, row_size(CONTRACT))
    for env in range(envs):
        episode, left = 0, 0
        for t in range(steps):
            if not left:
                episode, left = episode + 1, int(torch.randint(1, 14, (), generator=generator))
            left -= 1
            keep = bool(left) or float(torch.rand((), generator=generator)) > broken * 4
            rows[t, env] = torch.tensor([env, t, t * envs + env, -(t * envs + env), episode, keep])
    return rows


def matrix(rows: torch.Tensor, window: int, gamma: float) -> dict[tuple[int, int], float]:
    """The probability of each (pair, goal), by unique numbers: every window, pair and future row, one by one.

    Weights are those of the published code: gamma^(j - i) within the episode, and 1e-5 on the pair itself.
    """
    found: dict[tuple[int, int], float] = {}
    steps, envs = rows.shape[:2]
    for env in range(envs):
        for first in range(steps - window):
            for i in range(first, first + window - 1):
                if not rows[i, env, -1]:
                    continue
                weights = {
                    j: gamma ** (j - i) if j > i else 1e-5
                    for j in range(i, first + window)
                    if rows[j, env, -2] == rows[i, env, -2] and rows[j, env, -1]
                }
                for j, weight in weights.items():
                    key = int(rows[i, env, 2]), int(rows[j, env, 2])
                    found[key] = found.get(key, 0.0) + weight / sum(weights.values())
    whole = sum(found.values())
    return {key: value / whole for key, value in found.items()}


def filled(steps: int, seed: int, chunk: int = 5) -> tuple[Replay, torch.Tensor]:
    memory, rows = replay(), history(steps, ENVS, seed)
    for start in range(0, steps, chunk):
        memory.add(rows[start : start + chunk])
    return memory, rows[-SLOTS:]


# The ring is part full, exactly full, and has gone round by whole turns and by parts of one.
@pytest.mark.parametrize("steps", [15, 24, 48, 61])
def test_pairs_and_goals_have_the_probabilities_of_the_matrix(steps):
    memory, rows = filled(steps, seed=steps)
    expected = matrix(rows, WINDOW, GAMMA)
    draws = 400_000
    state, action, goal = memory.sample(draws, torch.Generator().manual_seed(0))
    assert torch.equal(action, -state[:, 2:])
    pairs, times = torch.stack((state[:, 2], goal[:, 0]), 1).long().unique(dim=0, return_counts=True)
    counts = {tuple(pair): count for pair, count in zip(pairs.tolist(), times.tolist(), strict=True)}
    assert counts.keys() <= expected.keys()
    common = {key: draws * p for key, p in expected.items() if draws * p >= 10}
    rare = draws - sum(common.values())
    cells = [(counts.get(key, 0), mean) for key, mean in common.items()]
    cells += [(draws - sum(counts.get(key, 0) for key in common), rare)] if rare > 10 else []
    chi_square = sum((count - mean) ** 2 / mean for count, mean in cells)
    freedom = len(cells) - 1
    assert freedom > 100
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


@given(
    later=st.integers(0, 1000),
    gamma=st.sampled_from([0.5, 0.9, 0.99, 0.9999]),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_the_goal_is_the_first_step_whose_cumulative_probability_reaches_u(later, gamma, uniform):
    (steps,) = hindsight(torch.tensor([uniform], dtype=torch.float64), torch.tensor([later]), gamma).tolist()
    if later == 0:
        assert steps == 0
        return
    assert 1 <= steps <= later
    below, reached = ((1 - gamma**k) / (1 - gamma**later) for k in (steps - 1, steps))
    assert below - 1e-9 <= uniform <= reached + 1e-9


@settings(max_examples=50)
@given(
    chunks=st.lists(st.integers(1, SLOTS), min_size=1, max_size=8),
    seed=st.integers(0, 50),
    broken=st.sampled_from([0.0, 0.1, 0.2]),
)
def test_whatever_is_added_what_is_drawn_is_live_whole_and_of_one_episode(chunks, seed, broken):
    memory, rows = replay(), history(sum(chunks), ENVS, seed, broken)
    for part in rows.split(chunks):
        memory.add(part)
    steps, oldest = len(rows), max(0, len(rows) - SLOTS)
    if steps <= WINDOW:
        with pytest.raises(ValueError, match=rf"holds {steps} steps, too few for windows of {WINDOW}"):
            memory.sample(4, torch.Generator())
        return
    state, _, goal = memory.sample(500, torch.Generator().manual_seed(seed))
    env, time = state[:, 0].long(), state[:, 1].long()
    later = goal[:, 0].long() // ENVS
    assert torch.equal(goal[:, 0].long() % ENVS, env)
    pair, future = rows[time, env], rows[later, env]
    assert torch.equal(pair[:, :3], state)
    assert pair[:, -1].all() and future[:, -1].all()
    assert torch.equal(pair[:, -2], future[:, -2])
    assert (time >= oldest).all() and (later < steps).all() and (later >= time).all() and (later - time < WINDOW).all()


@settings(max_examples=30)
@given(chunks=st.lists(st.integers(1, SLOTS), min_size=2, max_size=8), seed=st.integers(0, 20))
def test_how_rows_are_cut_does_not_matter(chunks, seed):
    rows = history(sum(chunks) + WINDOW, ENVS, seed)
    parted, single = replay(), replay()
    for part in chain(rows[:WINDOW].split(1), rows[WINDOW:].split(chunks)):
        parted.add(part)
    for row in rows:
        single.add(row[None])
    drawn = [memory.sample(200, torch.Generator().manual_seed(1)) for memory in (parted, single)]
    for one, other in zip(*drawn, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("steps", [15, 24, 61])
def test_a_restored_buffer_goes_on_as_the_straight_one(steps):
    straight, _ = filled(steps, seed=3)
    kept = {name: value.clone() if name == "rows" else value for name, value in straight.state().items()}
    resumed, generator = replay(), torch.Generator()
    resumed.restore(kept)
    for memory in (straight, resumed):
        memory.add(history(steps + 7, ENVS, seed=3)[steps:])
    for one, other in zip(*(m.sample(3000, generator.manual_seed(2)) for m in (straight, resumed)), strict=True):
        assert torch.equal(one, other)


def test_a_buffer_of_other_sizes_is_refused():
    state = filled(15, seed=3)[0].state()
    with pytest.raises(ValueError, match=r"\(24, 4, 6\) cannot go on from rows \(15, 3, 6\)"):
        replay(envs=4).restore(state)


def test_a_training_step_s_batches_are_different_parts_of_one_draw():
    memory, _ = filled(61, seed=4)
    batches = list(memory.sample_many(5, 40, torch.Generator().manual_seed(0)))
    whole = memory.sample(200, torch.Generator().manual_seed(0))
    assert [len(batch.state) for batch in batches] == [40] * 5
    for name, parts in zip(("state", "action", "goal"), zip(*batches, strict=True), strict=True):
        assert torch.equal(torch.cat(parts), getattr(whole, name)), name


def test_it_stays_in_the_memory_that_it_began_with():
    memory = replay()
    places = [memory.rows.data_ptr(), memory.ends.data_ptr()]
    for part in history(100, ENVS, seed=0).split(7):
        memory.add(part)
    assert [memory.rows.data_ptr(), memory.ends.data_ptr()] == places
    assert memory.rows.shape == (SLOTS, ENVS, row_size(CONTRACT))
    assert memory.ends.shape == (ENVS, SLOTS)


def test_a_saved_buffer_is_as_large_as_what_it_holds():
    sizes = []
    for steps in (15, 24, 61):
        file = io.BytesIO()
        torch.save(filled(steps, seed=3)[0].state(), file)
        sizes.append(file.tell() - min(steps, SLOTS) * ENVS * row_size(CONTRACT) * 4)
    assert max(sizes) < min(sizes) + 200  # what is around the rows


def test_rows_that_do_not_fit_are_refused():
    memory = replay()
    for shape in ((SLOTS + 1, ENVS, 6), (1, ENVS + 1, 6), (1, ENVS, 5)):
        with pytest.raises(ValueError, match="do not fit"):
            memory.add(torch.zeros(shape))


def test_a_buffer_of_broken_rows_is_refused():
    memory = replay()
    memory.add(torch.zeros(SLOTS, ENVS, row_size(CONTRACT)))
    with pytest.raises(ValueError, match="next to no row"):
        memory.sample(4, torch.Generator())

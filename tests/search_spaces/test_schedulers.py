"""When a configuration is stopped: the rule by hand, and what holds whatever is reported."""

import json
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.schedulers import AshaSpec, Decision, Halving, HyperbandSpec, NoneSpec

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30, unique=True)


def asha(factor: int = 2, mode: str = "min") -> Halving:
    return AshaSpec(grace=1, factor=factor).build("min" if mode == "min" else "max")


def decisions(halving: Halving, values: dict[str, float], step: int = 1, seed: int = 0) -> dict[str, Decision]:
    return {cell: halving.report("arm", cell, seed, step, value) for cell, value in values.items()}


def test_rungs_grow_by_the_factor_and_end_before_the_trial_does() -> None:
    assert AshaSpec(grace=2, factor=3).rungs(60) == [2, 6, 18, 54]
    assert AshaSpec(grace=2, factor=3).rungs(54) == [2, 6, 18]
    assert AshaSpec(grace=100, factor=3).rungs(60) == []
    assert NoneSpec().rungs(60) == []


def test_half_goes_on_with_factor_two() -> None:
    reported = {"a": 5.0, "b": 3.0, "c": 4.0, "d": 3.5, "e": 3.0}
    # n and how many are kept: 1 1, 2 1, 3 1, 4 2, 5 2. Before c: b is better. Before d: b. Before e, which ties: b.
    assert decisions(asha(), reported) == dict(
        zip("abcde", ["continue", "continue", "stop", "continue", "continue"], strict=True)
    )


def test_largest_is_best_where_the_mode_is_max() -> None:
    reported = {"a": -5.0, "b": -3.0, "c": -4.0}
    assert list(decisions(asha(mode="max"), reported).values()) == ["continue", "continue", "stop"]


def test_cell_is_judged_by_the_mean_over_its_seeds_and_stops_with_all_of_them() -> None:
    halving = asha()
    assert halving.report("arm", "a", 0, 1, 1.0) == "continue"
    assert halving.report("arm", "b", 0, 1, 0.9) == "continue"
    assert halving.report("arm", "a", 1, 1, 0.2) == "continue"  # mean 0.6, the best of two
    assert halving.report("arm", "b", 1, 1, 9.0) == "stop"  # mean 4.95
    assert halving.report("arm", "b", 0, 2, 0.0) == "stop"  # went past the rung before its cell was stopped there
    assert halving.report("arm", "b", 2, 1, 0.0) == "stop"  # gets there later
    assert halving.report("arm", "a", 0, 2, 1.0) == "continue"


def test_arms_are_not_compared() -> None:
    halving = asha()
    assert halving.report("good", "a", 0, 1, 0.1) == "continue"
    assert halving.report("bad", "b", 0, 1, 99.0) == "continue"


def test_value_past_a_rung_counts_at_every_rung_that_it_passed() -> None:
    halving = asha()
    halving.report("arm", "a", 0, 5, 1.0)
    assert [(event["rung"], event["value"]) for event in halving.events()] == [(1, 1.0), (2, 1.0), (4, 1.0)]
    assert halving.report("arm", "b", 0, 1, 2.0) == "stop"


def test_reporting_a_rung_again_changes_nothing() -> None:
    halving = asha()
    halving.report("arm", "a", 0, 1, 1.0)
    halving.events()
    assert halving.report("arm", "a", 0, 1, 7.0) == "continue"
    assert halving.events() == []
    assert halving.report("arm", "b", 0, 1, 2.0) == "stop"  # a is still at 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_non_finite_never_goes_on_even_alone_and_is_beaten_by_all(value: float, mode: str) -> None:
    halving = asha(mode=mode)
    assert halving.report("arm", "nan", 0, 1, value) == "stop"
    assert halving.report("arm", "a", 0, 1, 1.0) == "continue"


def test_one_diverged_seed_stops_its_cell_at_the_next_rung() -> None:
    halving = asha()
    assert halving.report("arm", "a", 0, 1, 0.1) == "continue"
    assert halving.report("arm", "a", 1, 1, 0.1) == "continue"
    assert halving.report("arm", "a", 0, 3, math.nan) == "stop"  # past the rung at 2, which it did not report
    assert halving.report("arm", "a", 1, 1, 0.1) == "continue"
    assert halving.report("arm", "a", 1, 2, 0.1) == "stop"


def test_none_goes_on_whatever_is_reported() -> None:
    halving = NoneSpec().build()
    assert {halving.report("arm", "a", 0, step, value) for step, value in enumerate([1.0, math.nan, 1e9])} == {
        "continue"
    }
    assert halving.events() == []


@given(VALUES, st.integers(2, 4), st.randoms(use_true_random=False))
def test_best_cell_is_never_stopped(values: list[float], factor: int, random: Random) -> None:
    """Cells advance in any interleaving, each with a constant value."""
    halving, steps = asha(factor), dict.fromkeys(range(len(values)), 0)
    while running := [cell for cell, step in steps.items() if step < 30]:
        cell = random.choice(running)
        steps[cell] += random.randint(1, 9)
        if halving.report("arm", str(cell), 0, steps[cell], values[cell]) == "stop":
            assert values[cell] != min(values)
            del steps[cell]
    assert values.index(min(values)) in steps


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_about_one_in_factor_goes_on(factor: int) -> None:
    """In random order the rank of the n-th is uniform, so it goes on with probability max(1, n // factor) / n."""
    cells, rounds, random, survivors = 60, 40, Random(0), 0
    for _ in range(rounds):
        values = random.sample(range(1000), cells)
        survivors += list(decisions(asha(factor), {str(value): float(value) for value in values}).values()).count(
            "continue"
        )
    chances = [max(1, n // factor) / n for n in range(1, cells + 1)]
    deviation = math.sqrt(rounds * sum(chance * (1 - chance) for chance in chances))
    assert survivors == pytest.approx(rounds * sum(chances), abs=4 * deviation)
    assert survivors / rounds == pytest.approx(cells / factor, rel=0.25)


REPORTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(1, 40), st.floats(0, 1) | st.just(math.nan)),
    max_size=60,
)


@given(REPORTS, st.integers(0, 60), st.sampled_from([AshaSpec(grace=2, factor=2), HyperbandSpec(grace=1, factor=2)]))
def test_replayed_events_decide_alike(
    reports: list[tuple[int, int, int, float]], cut: int, spec: AshaSpec | HyperbandSpec
) -> None:
    straight, before, after = spec.build(), spec.build(), spec.build()
    for halving in (straight, before, after):
        for cell in range(6):
            halving.add("arm", str(cell))

    def feed(halving: Halving, part: list[tuple[int, int, int, float]]) -> list[Decision]:
        return [halving.report("arm", str(cell), seed, step, value) for cell, seed, step, value in part]

    expected = feed(straight, reports)
    got = feed(before, reports[:cut])
    after.replay(json.loads(json.dumps(before.events(), allow_nan=False)))
    assert got + feed(after, reports[cut:]) == expected


def test_hyperband_deals_cells_to_brackets_in_its_proportions() -> None:
    halving = HyperbandSpec(grace=1, factor=3, brackets=3).build()
    dealt = [halving.bracket("arm", str(cell)) for cell in range(34)]
    # Algorithm 1 of 1603.06560 with s_max = 2: 9, 5 and 3 configurations.
    assert [dealt[:17].count(bracket) for bracket in range(3)] == [9, 5, 3]
    assert dealt[17:] == dealt[:17]
    assert [halving.bracket("other", str(cell)) for cell in range(34)] == dealt


def test_hyperband_brackets_start_later_and_halve_apart() -> None:
    halving = HyperbandSpec(grace=1, factor=3, brackets=2).build()
    early, late = [[cell for cell in map(str, range(20)) if halving.bracket("arm", cell) == b][:2] for b in range(2)]
    assert halving.report("arm", early[0], 0, 1, 0.0) == "continue"
    assert halving.report("arm", early[1], 0, 1, 9.0) == "stop"
    assert halving.report("arm", late[0], 0, 2, 9.0) == "continue"  # its first rung is at 3
    assert halving.report("arm", late[1], 0, 3, 8.0) == "continue"
    assert halving.report("arm", late[0], 0, 3, 9.0) == "stop"
    assert {event["rung"] for event in halving.events() if event["cell"] in late} == {3}

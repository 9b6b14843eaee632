"""What is tried: as many different configurations for every arm; a resumed sampler goes on as if it never stopped."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces import samplers
from search_spaces.domains import Choices, Domain, Range, same
from search_spaces.samplers import Assignment, GridSpec, OptunaSpec, RandomSpec, Sampler, Space

RATE: Domain = Range(1e-4, 1e-1, log=True)
WIDE: list[Space] = [{"lr": RATE, "size": Choices(("small", "large"))}]
# A temperature, which exists only where kind is ancre.
CONDITIONAL: list[Space] = [
    {"kind": Choices(("cascaded",)), "lr": Choices((0.1, 0.2, 0.3))},
    {"kind": Choices(("ancre",)), "lr": Choices((0.1, 0.2, 0.3)), "temperature": Choices((1, 2))},
]
LEARNING = OptunaSpec(cells=25, seed=3, startup=8)


def ask_all(sampler: Sampler) -> list[Assignment]:
    return list(iter(sampler.ask, None))


def cost(assignment: Assignment) -> float:
    """Best at lr = 1e-2 and large."""
    return abs(math.log10(assignment["lr"]) + 2) + (assignment["size"] == "small")


def test_grid_is_the_product_with_the_last_axis_fastest() -> None:
    asked = ask_all(GridSpec().build([{"a": Choices((1, 2)), "b": Choices(("x", "y"))}]))
    assert [tuple(assignment.values()) for assignment in asked] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_grid_of_alternatives_has_each_axis_only_where_it_exists() -> None:
    asked = ask_all(GridSpec().build(CONDITIONAL))
    assert samplers.size(CONDITIONAL) == len(asked) == 3 + 3 * 2
    assert [("temperature" in assignment) for assignment in asked] == [False] * 3 + [True] * 6


def test_grid_refuses_a_range() -> None:
    with pytest.raises(ValueError, match="a grid takes a list of values for lr, got a range"):
        GridSpec().build(WIDE)


@pytest.mark.parametrize("spec", [RandomSpec(cells=9), OptunaSpec(cells=9, startup=3)])
def test_every_configuration_of_a_finite_arm_comes_once(spec: RandomSpec | OptunaSpec) -> None:
    sampler, asked = spec.build(CONDITIONAL), []
    while (assignment := sampler.ask()) is not None:
        asked.append(assignment)
        sampler.tell(assignment, assignment["lr"])
    assert sorted(map(same, asked)) == sorted(map(same, samplers.everything(CONDITIONAL)))


@pytest.mark.parametrize("spec", [RandomSpec(cells=20), OptunaSpec(cells=20)])
def test_no_more_are_asked_than_cells(spec: RandomSpec | OptunaSpec) -> None:
    sampler = spec.build(WIDE)
    assert len(ask_all(sampler)) == 20
    assert sampler.ask() is None


@given(st.integers(0, 10**6))
def test_random_stays_within_its_domains(seed: int) -> None:
    space: Space = {
        "log": RATE,
        "step": Range(0.0, 1.0, step=0.25),
        "whole": Range(3, 7),
        "logwhole": Range(1, 64, log=True),
    }
    for drawn in ask_all(RandomSpec(cells=20, seed=seed).build([space])):
        assert 1e-4 <= drawn["log"] <= 1e-1
        assert drawn["step"] in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert drawn["whole"] in range(3, 8) and isinstance(drawn["whole"], int)
        assert drawn["logwhole"] in range(1, 65) and isinstance(drawn["logwhole"], int)


def test_log_range_is_uniform_in_the_logarithm() -> None:
    logs = [math.log10(drawn["lr"]) for drawn in ask_all(RandomSpec(cells=2000).build([{"lr": RATE}]))]
    # Uniform on (-4, -1): mean -2.5, standard deviation 3 / sqrt(12), so 0.0194 of the mean over 2000.
    assert sum(logs) / 2000 == pytest.approx(-2.5, abs=4 * 0.0194)
    assert sum(log < -3 for log in logs) / 2000 == pytest.approx(1 / 3, abs=4 * 0.0105)


@pytest.mark.parametrize("kind", [RandomSpec, OptunaSpec])
def test_arms_draw_the_same_values_of_an_axis_that_they_share(kind: type[RandomSpec] | type[OptunaSpec]) -> None:
    baseline = ask_all(kind(cells=10, seed=5).build([{"lr": RATE}]))
    method = ask_all(kind(cells=10, seed=5).build([{"temperature": RATE, "lr": RATE}]))
    assert [drawn["lr"] for drawn in baseline] == [drawn["lr"] for drawn in method]
    assert [drawn["lr"] for drawn in method] != [drawn["temperature"] for drawn in method]


def drive(until: int | None = None, past: list[list[Any]] | None = None) -> list[list[Any]]:
    """Ask, and tell every third time what is not told yet: the history, or a prefix of it."""
    sampler, history = LEARNING.build(WIDE), past or []
    sampler.replay([tuple(entry) for entry in history])
    while len(history) != until and (asked := sampler.ask()) is not None:
        history.append([asked, None])
        if len(history) % 3 == 0:
            for entry in history:
                if entry[1] is None:
                    entry[1] = cost(entry[0])
                    sampler.tell(entry[0], entry[1])
    return history


@settings(max_examples=10)
@given(st.integers(0, 25))
def test_learning_sampler_resumes_as_if_it_had_not_stopped(until: int) -> None:
    assert drive(past=drive(until)) == drive()


def test_listed_samplers_resume_with_what_was_not_asked() -> None:
    for spec in (GridSpec(), RandomSpec(cells=7, seed=1)):
        whole = ask_all(spec.build(CONDITIONAL))
        resumed = spec.build(CONDITIONAL)
        resumed.replay((assignment, None) for assignment in whole[:4])
        assert ask_all(resumed) == whole[4:]


def test_learning_sampler_finds_what_random_does_not() -> None:
    """30 questions each, ten seeds: the mean of the last ten is nearer to the optimum than a random draw is."""

    def last_ten(spec: RandomSpec | OptunaSpec) -> float:
        sampler, costs = spec.build(WIDE), []
        for asked in itertools.islice(iter(sampler.ask, None), 30):
            costs.append(cost(asked))
            sampler.tell(asked, costs[-1])
        return sum(costs[-10:]) / 10

    learned = [last_ten(OptunaSpec(cells=30, seed=seed)) for seed in range(5)]
    drawn = [last_ten(RandomSpec(cells=30, seed=seed)) for seed in range(5)]
    assert sum(learned) < 0.6 * sum(drawn)


@pytest.mark.parametrize(("mode", "worst"), [("min", math.inf), ("max", -math.inf), ("min", math.nan)])
def test_diverged_configurations_are_avoided(mode: samplers.Mode, worst: float) -> None:
    sampler = OptunaSpec(cells=30, seed=0, startup=10).build(WIDE, mode)
    asked: list[Assignment] = []
    while (assignment := sampler.ask()) is not None:
        asked.append(assignment)
        sampler.tell(assignment, worst if assignment["size"] == "small" else assignment["lr"])
    assert sum(assignment["size"] == "small" for assignment in asked[-15:]) <= 5


@pytest.mark.parametrize("table", [{"cells": 0}, {"cells": "3"}, {"cells": 3, "seed": -1}, {"cells": 3, "startup": 0}])
def test_sampler_spec_is_strict(table: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        OptunaSpec.model_validate(table)

"""What an axis may be: every form is read as it says, and everything else is refused with what would be right."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import domains
from search_spaces.domains import Choices, Range, read


def test_paper_bracket_is_that_of_section_5_1() -> None:
    assert read({"bracket": "paper"}) == Choices((5e-4, 1e-3, 5e-3, 1e-2, 5e-2))


def test_geometric_bracket_multiplies_around_its_center() -> None:
    assert read({"center": 1e-3, "factor": 3, "count": 3}) == Choices((0.000333333333333, 1e-3, 3e-3))
    assert read({"center": 8, "factor": 4, "count": 2}) == Choices((4.0, 16.0))
    assert read({"center": 1e-3, "factor": 10, "count": 1}) == Choices((1e-3,))


@pytest.mark.parametrize(
    ("table", "size", "members"),
    [
        ({"low": 2, "high": 5}, 4, [2, 3, 4, 5]),
        ({"low": 2, "high": 9, "step": 3}, 3, [2, 5, 8]),
        ({"low": 0.0, "high": 0.3, "step": 0.1}, 4, [0.0, 0.1, 0.2, 0.3]),
        ({"low": 1.5, "high": 1.5}, 1, [1.5]),
        ({"low": 1, "high": 4, "log": True}, 4, [1, 2, 3, 4]),
        ({"low": 0.5, "high": 2}, None, None),
    ],
)
def test_range_knows_its_members(table: dict[str, Any], size: int | None, members: list[float] | None) -> None:
    domain = read(table)
    assert isinstance(domain, Range)
    assert domain.size == size
    if members is None:
        with pytest.raises(ValueError, match="continuum"):
            domain.members()
    else:
        assert list(domain.members()) == pytest.approx(members)


def test_whole_bounds_are_a_whole_range_and_one_float_makes_it_continuous() -> None:
    whole, mixed = read({"low": 1, "high": 3}), read({"low": 1, "high": 3.0})
    assert isinstance(whole, Range) and whole.integer
    assert isinstance(mixed, Range) and not mixed.integer


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "should have at least one value, got an empty list"),
        ([1, 2, 1], "should name each value once, got 1 twice"),
        ([1, 1.0], "should name each value once, got 1.0 twice"),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], "should name each value once"),
        ([0.1, math.nan], "should hold finite numbers, got nan"),
        ([-math.inf], "should hold finite numbers, got -inf"),
        (3, "should be a list of values, a range or a bracket, got 3"),
        ("1..3", "should be a list of values"),
        ({}, "got a table with no keys"),
        ({"values": [1]}, "got a table with values"),
        ({"bracket": "papre"}, "bracket should be one of paper, got 'papre'"),
        ({"bracket": "paper", "low": 1}, "should have only the keys bracket, got 'low'"),
        ({"center": 1e-3, "factor": 3}, "should also have count, got only center, factor"),
        ({"center": 0, "factor": 3, "count": 3}, "center should be above 0, got 0"),
        ({"center": 1, "factor": 1, "count": 3}, "factor should be above 1, got 1"),
        ({"center": 1, "factor": 3, "count": 0}, "count should be a whole number from 1 to 1000, got 0"),
        ({"center": 1, "factor": 3, "count": True}, "count should be a whole number from 1 to 1000, got True"),
        ({"center": 1, "factor": 1e300, "count": 9}, "should stay within finite numbers above 0"),
        ({"low": 3, "high": 2}, "low should not be above high, got low 3, high 2"),
        ({"low": 0, "high": 2, "log": True}, "a log range should start above 0, got low 0"),
        ({"low": 1, "high": 2, "log": 1}, "log should be true or false, got 1"),
        ({"low": 1, "high": 2, "log": True, "step": 1}, "a log range has no step, got step 1"),
        ({"low": 1, "high": 2, "step": 0}, "step should be above 0, got 0"),
        ({"low": math.nan, "high": 2}, "low should be a finite number, got nan"),
        ({"low": "1", "high": 2}, "low should be a finite number, got '1'"),
        ({"low": False, "high": 2}, "low should be a finite number, got False"),
        ({"low": 1}, "should also have high, got only low"),
        ({"low": 1, "hihg": 2}, "should have only the keys high, log, low, step, got 'hihg'"),
    ],
)
def test_what_is_no_domain_is_refused_in_one_line(value: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        read(value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@given(st.floats(1e-8, 1e8), st.floats(1.01, 100), st.integers(1, 9))
def test_bracket_is_centered_and_grows(center: float, factor: float, count: int) -> None:
    domain = read({"center": center, "factor": factor, "count": count})
    assert isinstance(domain, Choices) and domain.size == count
    rates = domain.values
    assert math.prod(rates) ** (1 / count) == pytest.approx(center, rel=1e-6)
    assert all(later / earlier == pytest.approx(factor, rel=1e-6) for earlier, later in pairwise(rates))


def test_true_and_one_are_two_values_and_one_and_its_float_are_one() -> None:
    assert domains.same(True) != domains.same(1)
    assert domains.same({"a": [1, 2.0]}) == domains.same({"a": (1.0, 2)})

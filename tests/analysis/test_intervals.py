"""Means and intervals against scipy.stats and by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.intervals import summarize, t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30, 999])
@pytest.mark.parametrize("inside", [0.5, 0.95, 0.99])
def test_t_quantile_is_scipys(freedom: int, inside: float) -> None:
    assert t_quantile(freedom, inside) == pytest.approx(stats.t.ppf(0.5 + inside / 2, freedom), rel=1e-9)


def test_three_seeds_by_hand() -> None:
    found = summarize([11.0, 12.0, 13.0])
    assert (found.n, found.mean, found.sd) == (3, pytest.approx(12.0), pytest.approx(1.0))
    half = 4.302652729911275 / math.sqrt(3)
    assert (found.low, found.high) == (pytest.approx(12 - half), pytest.approx(12 + half))


def test_one_value_has_no_spread_and_none_has_no_mean() -> None:
    one, none = summarize([5.0]), summarize([])
    assert (one.mean, one.sd, one.low, one.high) == (5.0, None, None, None)
    assert (none.n, none.mean) == (0, None)


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=20))
def test_any_finite_values_give_a_finite_mean_within_them(values: list[float]) -> None:
    found = summarize(values)
    assert found.mean is not None and found.sd is not None and found.sd >= 0
    slack = 1e-12 * max(map(abs, values))
    assert min(values) - slack <= found.mean <= max(values) + slack
    assert math.isfinite(found.sd)

"""Averages, steps saved and theory curves against hand-computed cases."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curves import Saving, average, linear, saving, sublinear

NAN = math.nan


def test_average_interpolates_to_the_common_steps() -> None:
    curve = average([[(0, 10.0), (10, 0.0)], [(0, 20.0), (5, 12.0), (10, 2.0)]])
    assert curve is not None
    assert curve.steps == (0, 5, 10)
    assert curve.mean == pytest.approx((15.0, 8.5, 1.0))
    assert curve.low is not None and curve.low[1] == pytest.approx(8.5 - 12.706204736 * 3.5)  # n = 2: sd 7/sqrt 2


def test_average_keeps_to_the_steps_that_all_seeds_have() -> None:
    curve = average([[(0, 4.0), (10, 3.0), (20, 2.0)], [(10, 5.0), (15, 4.0)]])
    assert curve is not None
    assert (curve.steps, curve.mean) == ((10, 15), pytest.approx((4.0, 3.25)))


def test_means_of_logarithms() -> None:
    curve = average([[(0, 1.0), (10, 1e-8)], [(0, 100.0), (10, 1e-12)]], logarithmic=True)
    assert curve is not None
    assert curve.mean == pytest.approx((10.0, 1e-10))
    assert curve.low is not None and min(curve.low) > 0
    assert average([[(0, 4.0)], [(0, -2.0)]], logarithmic=True) == average([[(0, 4.0)], [(0, -2.0)]])


def test_one_seed_has_no_interval() -> None:
    curve = average([[(0, 1.0), (1, 2.0)]])
    assert curve is not None and curve.low is None and curve.seeds == 1


@pytest.mark.parametrize("curves", [[], [[]], [[(0, 1.0)], [(5, 1.0)]], [[(0, NAN)], [(0, 1.0)]]])
def test_curves_without_a_common_step_have_no_mean(curves: list[list[tuple[int, float]]]) -> None:
    assert average(curves) is None


BASE = [(0, 10.0), (50, 6.0), (100, 4.0)]


def test_steps_saved_by_hand() -> None:
    found = saving([(0, 10.0), (40, 5.0), (60, 3.0), (100, 2.0)], BASE)
    assert found is not None
    assert (found.target, found.baseline, found.step) == (4.0, 100, pytest.approx(50.0))
    assert found.share == pytest.approx(0.5)


def test_a_target_never_reached_is_said() -> None:
    found = saving([(0, 10.0), (100, 4.5)], BASE)
    assert found is not None and found.step is None and found.share is None


def test_the_baseline_saves_nothing_against_itself() -> None:
    found = saving(BASE, BASE)
    assert found is not None and found.share == pytest.approx(0.0)


def test_a_slower_curve_saves_less_than_nothing() -> None:
    found = saving([(0, 10.0), (200, 4.0)], BASE)
    assert found is not None and found.share == pytest.approx(-1.0)


def test_the_first_crossing_counts_and_larger_is_better_where_asked() -> None:
    found = saving([(0, 0.0), (10, 2.0), (20, 0.5), (30, 2.0)], [(0, 0.0), (40, 1.0)], mode="max")
    assert found is not None and found.step == pytest.approx(5.0)


def test_points_that_are_not_finite_are_no_points() -> None:
    found = saving([(0, 10.0), (50, NAN), (100, 2.0)], BASE)
    assert found is not None and found.step == pytest.approx(75.0)
    assert saving([(0, 1.0)], []) is None


@given(st.integers(3, 40), st.floats(0.1, 100), st.floats(1e-6, 1e3), st.floats(1.1, 100))
def test_lower_bound_passes_its_anchor_with_the_slope_of_the_theorem(
    depth: int, time: float, loss: float, factor: float
) -> None:
    assert sublinear(time, depth, (time, loss)) == pytest.approx(loss)
    ratio = sublinear(factor * time, depth, (time, loss)) / loss
    assert math.log(ratio) == pytest.approx(-(depth - 1) / (depth - 2) * math.log(factor))


def test_upper_bound_by_hand() -> None:
    assert linear(0.0, 3.0) == 3.0
    assert linear(2.0, 1.0, shrink=0.5) == pytest.approx(math.exp(-1.0))
    assert sublinear(10.0, 3, (1.0, 1.0)) == pytest.approx(0.01)  # 1/t^2 at K = 3


def test_a_baseline_that_grows_worse_is_met_where_it_was_best():
    """Its end, which anything reaches, would say that most steps are saved."""
    baseline = [(25, 50.0), (50, 40.0), (75, 60.0), (100, 72.0)]
    assert saving([(25, 52.0), (50, 44.0), (75, 36.0)], baseline) == Saving(40.0, 50, 62.5)
    assert saving([(25, 52.0), (50, 51.0)], baseline) == Saving(40.0, 50, None)

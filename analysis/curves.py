"""Learning curves of a configuration over its seeds: mean and interval, steps saved at equal metric, and theory curves.

A curve is a list of (step, value). Points that are not finite are no points of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from analysis.intervals import summarize
from analysis.store import Points


@dataclass(frozen=True)
class Curve:
    """The mean of several seeds at each step; the 95 % Student-t interval is None with one seed."""

    steps: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None
    seeds: int

    def exponential(self) -> Curve:
        """The curve whose logarithms this one has."""
        low, high = (values and tuple(map(math.exp, values)) for values in (self.low, self.high))
        return replace(self, mean=tuple(map(math.exp, self.mean)), low=low, high=high)

    @property
    def points(self) -> Points:
        return list(zip(self.steps, self.mean, strict=True))


@dataclass(frozen=True)
class Saving:
    """Where a curve reaches a baseline's best value. None: never."""

    target: float  # the baseline's best value
    baseline: int  # the step at which the baseline has it: its last
    step: float | None  # the first step at which the curve has it, linearly interpolated

    @property
    def share(self) -> float | None:
        """Steps saved, as a share of the baseline's: 0.343 is the paper's mean; negative where the curve is slower."""
        return None if self.step is None else 1 - self.step / self.baseline


def average(curves: Sequence[Points], logarithmic: bool = False) -> Curve | None:
    """The mean curve on the steps of all curves, between the latest start and the earliest end, interpolated linearly.

    Args:
        curves: one a seed.
        logarithmic: take mean and interval of the logarithms, for positive values that fall by orders of magnitude.

    Returns:
        None where the curves share no step.
    """
    finite = [[point for point in curve if math.isfinite(point[1])] for curve in curves]
    if not finite or not all(finite):
        return None
    if logarithmic and all(value > 0 for curve in finite for _, value in curve):
        logs = average([[(step, math.log(value)) for step, value in curve] for curve in finite])
        return logs and logs.exponential()
    start, end = max(curve[0][0] for curve in finite), min(curve[-1][0] for curve in finite)
    grid = sorted({step for curve in finite for step, _ in curve if start <= step <= end})
    if not grid:
        return None
    at = [summarize(values) for values in zip(*(_interpolated(curve, grid) for curve in finite), strict=True)]
    means = tuple(point.mean for point in at if point.mean is not None)
    low = tuple(point.low for point in at if point.low is not None)
    high = tuple(point.high for point in at if point.high is not None)
    return Curve(tuple(grid), means, low or None, high or None, len(finite))


def _interpolated(curve: Points, grid: Sequence[int]) -> list[float]:
    """The curve's value at each step of an ascending grid that lies inside it."""
    values, k = [], 0
    for step in grid:
        while curve[k][0] < step:
            k += 1
        values.append(curve[k][1] if curve[k][0] == step else _between(curve[k - 1], curve[k], step))
    return values


def _between(left: tuple[int, float], right: tuple[int, float], step: float) -> float:
    share = (step - left[0]) / (right[0] - left[0])
    return left[1] + share * (right[1] - left[1])


def saving(curve: Points, baseline: Points, mode: str = "min") -> Saving | None:
    """Steps that a curve needs to reach the baseline's best value. None where the baseline has no curve.

    That is its final one, unless it grew worse on the way: then the steps up to its best are what can be saved. The
    first crossing counts: where the curve starts at the target or beyond, its first step.
    """
    sign = 1 if mode == "min" else -1
    base = [(step, value) for step, value in baseline if math.isfinite(value)]
    points = [(step, sign * value) for step, value in curve if math.isfinite(value)]
    if not base or base[-1][0] <= 0:
        return None
    last, best = min(base, key=lambda point: (sign * point[1], point[0]))
    return Saving(best, last, _reached(points, sign * best)) if last > 0 else None


def _reached(points: Points, target: float) -> float | None:
    """The first step at which a curve is at `target` or below."""
    if points and points[0][1] <= target:
        return float(points[0][0])
    for left, right in pairwise(points):
        if right[1] <= target:
            return left[0] + (left[1] - target) / (left[1] - right[1]) * (right[0] - left[0])
    return None


# Deep linear networks, in gradient-flow time t = step * learning rate (paper, section 3.2 and appendix C).


def sublinear(t: float, depth: int, anchor: tuple[float, float]) -> float:
    """The lower bound Omega(1 / t^((K-1)/(K-2))) of the shortcut 0:1 at depth K >= 3, through the point `anchor`.

    Theorem 3.2 at K = 3: 1 / t^2; appendix C.4 in general. Only the slope is the theorem's, not the constant.

    Args:
        t: gradient-flow time.
        depth: K.
        anchor: (t, loss) of a measured point.
    """
    exponent = (depth - 1) / (depth - 2)
    return float(anchor[1] * (t / anchor[0]) ** -exponent)


def linear(t: float, start: float, shrink: float = 0.1) -> float:
    """The upper bound L(0) e^(-2 (1 - lambda)^2 t) of the shortcut 0:K-1 (theorem 3.3, appendix C.4).

    Args:
        t: gradient-flow time.
        start: L(0).
        shrink: lambda in (0, 1), a bound on the norm of the product of layers 1..K-1.
    """
    return start * math.exp(-2 * (1 - shrink) ** 2 * t)

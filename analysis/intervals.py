"""What a handful of seeds says about a mean: standard deviation and Student-t interval, in plain Python.

scipy.stats would cost more start-up time than a whole query; a few seeds need only the t quantile for whole degrees of
freedom, which has a finite series.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Summary:
    """n values; `mean` is None for none of them, `sd` (n - 1 below) and the 95 % interval `low`..`high` need two."""

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


def summarize(values: Sequence[float]) -> Summary:
    """Mean, sample standard deviation and 95 % Student-t interval of the mean of finite values."""
    n = len(values)
    if n == 0:
        return Summary(0, None, None, None, None)
    scale = max(map(abs, values)) or 1.0  # squares of 1e200 would overflow
    shares = [value / scale for value in values]
    middle = math.fsum(shares) / n
    mean = scale * middle
    if n == 1:
        return Summary(1, mean, None, None, None)
    sd = scale * math.sqrt(math.fsum((share - middle) ** 2 for share in shares) / (n - 1))
    half = t_quantile(n - 1) * sd / math.sqrt(n)
    return Summary(n, mean, sd, mean - half, mean + half)


@cache
def t_quantile(freedom: int, inside: float = 0.95) -> float:
    """The t with P(|T| <= t) = `inside` for `freedom` = 1, 2, .. degrees of freedom: 4.3027 for 2.

    Bisection on the angle theta = atan(t / sqrt(freedom)), in which the probability grows from 0 to 1 on (0, pi / 2).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < inside else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _inside(theta: float, freedom: int) -> float:
    """P(|T| <= t) at theta = atan(t / sqrt(freedom)); Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even)."""
    odd = freedom % 2
    term = math.cos(theta) if odd else 1.0
    series = 0.0
    for k in range(freedom // 2):  # each term is the one before times cos^2 (2k + 1 + odd) / (2k + 2 + odd)
        series += term
        term *= math.cos(theta) ** 2 * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    probability = math.sin(theta) * series
    return (theta + probability) * 2 / math.pi if odd else probability

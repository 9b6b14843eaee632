"""KID against sums written out, and its bias, which is none."""

from itertools import product

import numpy as np
import pytest

from orchestrator.errors import InputError
from orchestrator.image_metrics.kernel import kid, squared_mmd


def test_sums_written_out() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 5, 3))

    def mean(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
        return float(np.mean([(a @ b / 3 + 1) ** 3 for a, b in pairs]))

    within = [mean([(s[i], s[j]) for i, j in product(range(5), range(5)) if i != j]) for s in (x, y)]
    assert squared_mmd(x, y) == pytest.approx(sum(within) - 2 * mean(list(product(x, y))))


def test_splits_of_one_set_are_zero_apart_on_average() -> None:
    """Where the biased estimate would lie far above: by E k(x, x) / n for each set."""
    random = np.random.default_rng(1)
    values = [squared_mmd(*np.split(random.permutation(random.normal(size=(200, 16))), 2)) for _ in range(300)]
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values)) < 3 * error
    assert 3 * error < 0.2 * 2 * 8 / 100  # E k(x, x) = E (|x|^2 / D + 1)^3 is about 8


def test_subsets_see_what_is_apart_and_come_again() -> None:
    x, y = np.random.default_rng(2).normal(size=(2, 300, 16))
    assert kid(x, y, size=100)[0] < 0.05 < 0.2 < kid(x, y + 0.5, size=100)[0]
    assert kid(x, y, size=100) == kid(x, y, size=100)


def test_too_few_are_refused() -> None:
    x = np.zeros((30, 4))
    with pytest.raises(InputError, match="KID: subsets of 1000 of 20 images"):
        kid(x, x[:20])

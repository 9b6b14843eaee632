"""FID against closed forms, and moments against numpy's, however they were gathered."""

import numpy as np
import pytest

from orchestrator.errors import InputError
from orchestrator.image_metrics.moments import Moments, distance, fid

RANDOM = np.random.default_rng(0)


def test_fid_of_gaussians_whose_covariances_commute() -> None:
    """|m - m'|^2 + sum (s - s')^2 for standard deviations s along common axes."""
    axes = np.linalg.qr(RANDOM.normal(size=(40, 40)))[0]
    s, other = RANDOM.uniform(0.1, 3, (2, 40))
    mean, other_mean = RANDOM.normal(size=(2, 40))
    value = fid(mean, axes * s**2 @ axes.T, other_mean, axes * other**2 @ axes.T)
    assert value == pytest.approx(((mean - other_mean) ** 2).sum() + ((s - other) ** 2).sum(), abs=1e-6)


def test_fid_of_gaussians_in_two_dimensions() -> None:
    """tr (C C')^1/2 = (tr C C' + 2 (det C det C')^1/2)^1/2 for 2 x 2 matrices."""
    roots = RANDOM.normal(size=(2, 2, 2))
    c, other = roots @ roots.transpose(0, 2, 1)
    between = np.sqrt(np.trace(c @ other) + 2 * np.sqrt(np.linalg.det(c) * np.linalg.det(other)))
    zero = np.zeros(2)
    assert fid(zero, c, zero, other) == pytest.approx(np.trace(c) + np.trace(other) - 2 * between, abs=1e-9)


def test_fid_of_general_gaussians_by_a_matrix_root() -> None:
    from scipy.linalg import sqrtm

    roots = RANDOM.normal(size=(2, 30, 60)) / 8
    c, other = roots @ roots.transpose(0, 2, 1)
    zero = np.zeros(30)
    expected = np.trace(c) + np.trace(other) - 2 * np.trace(sqrtm(c @ other)).real
    assert fid(zero, c, zero, other) == pytest.approx(expected, abs=1e-6)


def test_fid_with_itself_is_zero_though_the_covariance_is_singular() -> None:
    few = Moments.of(RANDOM.normal(size=(10, 50)))
    assert distance(few, few, "FID") == pytest.approx(0, abs=1e-6)


def test_batches_and_workers_give_the_moments_of_all() -> None:
    features = RANDOM.normal(size=(1000, 12)) + 1e4  # far from zero, where sums of squares would cancel
    parts = [Moments.of(part) for part in np.split(features, [1, 17, 400, 400, 901])]
    left, right = parts[0].merge(parts[1]).merge(parts[2]), parts[3].merge(parts[4]).merge(parts[5])
    for merged in (left.merge(right), right.merge(left)):
        assert merged.count == 1000
        np.testing.assert_allclose(merged.mean, features.mean(0), rtol=1e-14)
        np.testing.assert_allclose(merged.covariance("FID"), np.cov(features.T), atol=1e-10)


def test_one_image_has_no_covariance() -> None:
    with pytest.raises(InputError, match=r"^sFID: 1 images give no covariance; give at least 2$"):
        distance(Moments.of(np.ones((1, 3))), Moments.of(np.ones((5, 3))), "sFID")

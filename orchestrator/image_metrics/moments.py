"""Mean and covariance of features that come in batches and on several workers, and the distances of Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError

Array = NDArray[np.float64]


@dataclass
class Moments:
    """Of `count` feature vectors: their mean, (D,), and the sum of outer products of what differs from it, (D, D).

    Batches are merged by the pairwise update of Chan, Golub & LeVeque (1983, eq. 2.1), which cancels nothing.
    """

    count: int
    mean: Array
    scatter: Array

    @classmethod
    def of(cls, features: NDArray[Any]) -> Self:
        """Of features, (N, D)."""
        features = features.astype(np.float64)
        mean = features.mean(0) if len(features) else np.zeros(features.shape[1])
        centred = features - mean
        return cls(len(features), mean, centred.T @ centred)

    def merge(self, other: Moments) -> Moments:
        """Of both sets together."""
        count = self.count + other.count
        if not count:
            return self
        shift = other.mean - self.mean
        return Moments(
            count,
            self.mean + shift * (other.count / count),
            self.scatter + other.scatter + np.outer(shift, shift) * (self.count * other.count / count),
        )

    def covariance(self, metric: str) -> Array:
        """The unbiased covariance, (D, D). Raises InputError for `metric` where there are too few."""
        if self.count < 2:
            raise InputError(f"{metric}: {self.count} images give no covariance; give at least 2")
        return self.scatter / (self.count - 1)


def fid(mean: Array, covariance: Array, other_mean: Array, other_covariance: Array) -> float:
    """The squared Frechet distance of two Gaussians (Heusel et al. 2017, eq. 6).

    |m - m'|^2 + tr(C + C' - 2 (C C')^1/2). With C = F F^T and C' = G G^T the trace of the root is the sum of the
    singular values of F^T G: no root of a matrix is taken, so singular covariances (fewer images than features) lose
    no digits.

    Args:
        mean: (D,).
        covariance: (D, D).
    """
    between = np.linalg.norm(_factor(covariance).T @ _factor(other_covariance), "nuc")
    shift = mean - other_mean
    return float(shift @ shift + np.trace(covariance) + np.trace(other_covariance) - 2 * between)


def _factor(covariance: Array) -> Array:
    """F with F F^T = covariance; what is zero but for rounding is zero."""
    values, vectors = np.linalg.eigh(covariance)
    zero = values < values[-1] * len(values) * np.finfo(np.float64).eps
    factor: Array = vectors * np.sqrt(np.where(zero, 0, values))
    return factor


def distance(one: Moments, other: Moments, metric: str) -> float:
    """FID of two sets by their moments. Raises InputError, with the name of the metric, where a set is too small."""
    return fid(one.mean, one.covariance(metric), other.mean, other.covariance(metric))

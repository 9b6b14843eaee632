"""Improved precision and recall: which images lie where the other set's images do (Kynkaanniemi et al. 2019, eq. 1-2).

A set's manifold is the union of balls around its features, each reaching to the k-th nearest other one of the set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError

ROWS = 1000  # distances are made so many rows at a time


def precision_recall(reference: NDArray[Any], generated: NDArray[Any], k: int = 3) -> tuple[float, float]:
    """Share of generated features on the reference's manifold, and of reference features on the generated one.

    Args:
        reference: (N, D).
        generated: (M, D).

    Raises:
        InputError: a set has no k-th neighbour.
    """
    for name, features in (("reference", reference), ("generated", generated)):
        if len(features) <= k:
            raise InputError(f"precision and recall: {len(features)} {name} images have no neighbour number {k}")
    centre = reference.mean(0, dtype=np.float64)  # near zero fewer digits of a distance cancel
    real, made = (np.asarray(features, np.float64) - centre for features in (reference, generated))
    return _covered(made, real, radii(real, k)), _covered(real, made, radii(made, k))


def radii(features: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Squared distance of each feature to its k-th nearest other one, (N,)."""
    # The nearest is the feature itself.
    return np.concatenate([np.partition(block, k, axis=1)[:, k] for block in _distances(features, features)])


def _covered(points: NDArray[np.float64], centres: NDArray[np.float64], radius: NDArray[np.float64]) -> float:
    inside = [(block <= radius).any(1) for block in _distances(points, centres)]
    return float(np.concatenate(inside).mean())


def _distances(a: NDArray[np.float64], b: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Squared distances, (up to ROWS, len(b)) at a time."""
    squares = (b * b).sum(1)
    for first in range(0, len(a), ROWS):
        rows = a[first : first + ROWS]
        yield ((rows * rows).sum(1)[:, None] + squares - 2 * rows @ b.T).clip(0)

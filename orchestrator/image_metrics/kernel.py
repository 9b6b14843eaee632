"""KID: the unbiased squared maximum mean discrepancy with a cubic kernel (Binkowski et al. 2018, sections 3 and 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError


def kid(
    reference: NDArray[Any], generated: NDArray[Any], subsets: int = 100, size: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Mean and standard deviation over subsets. Its mean does not depend on the size of the sets; it can be negative.

    Args:
        reference: features, (N, D).
        generated: features, (M, D).
        size: of a subset of each.

    Raises:
        InputError: a set is smaller than a subset, or a subset smaller than 2.
    """
    fewest = min(len(reference), len(generated))
    if not 2 <= size <= fewest:
        raise InputError(f"KID: subsets of {size} of {fewest} images; give at least 2, and as many images as that")
    random = np.random.default_rng(seed)
    values = [
        squared_mmd(*(features[random.choice(len(features), size, replace=False)] for features in pair))
        for pair in [(reference, generated)] * subsets
    ]
    return float(np.mean(values)), float(np.std(values))


def squared_mmd(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Unbiased, of features (N, D) and (M, D), with the kernel (x . y / D + 1)^3."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    return _off_diagonal(x) + _off_diagonal(y) - 2 * float(_kernel(x, y).mean())


def _off_diagonal(x: NDArray[np.float64]) -> float:
    kernel = _kernel(x, x)
    return float((kernel.sum() - np.trace(kernel)) / (len(x) * (len(x) - 1)))


def _kernel(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    base = x @ y.T / x.shape[1] + 1
    kernel: NDArray[np.float64] = base * base * base  # ** 3 is ten times slower
    return kernel

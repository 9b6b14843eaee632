"""The Inception Score: how sure a classifier is of each image, and how evenly its classes are met.

Its sums are kept by split, and an image's split follows from its number: batches and workers can come in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError
from orchestrator.image_metrics import SPLIT


@dataclass
class ClassSums:
    """Of each split: its images, (splits,); their probabilities added, (splits, classes); and p log p, (splits,)."""

    count: NDArray[np.int64]
    probability: NDArray[np.float64]
    negentropy: NDArray[np.float64]  # in nats

    @classmethod
    def of(cls, logits: NDArray[Any], numbers: NDArray[np.int64], split: int = SPLIT) -> Self:
        """Of logits, (N, classes), of images with these numbers, (N,). Image i is in split i // split."""
        log_p = logits.astype(np.float64)
        log_p = log_p - log_p.max(1, keepdims=True)
        log_p = log_p - np.log(np.exp(log_p).sum(1, keepdims=True))
        p = np.exp(log_p)
        splits = numbers // split
        size = int(splits.max(initial=-1)) + 1
        sums = cls(np.bincount(splits, minlength=size), np.zeros((size, logits.shape[1])), np.zeros(size))
        np.add.at(sums.probability, splits, p)
        np.add.at(sums.negentropy, splits, np.where(p > 0, p * log_p, 0.0).sum(1))
        return sums

    def merge(self, other: ClassSums) -> ClassSums:
        """Of both sets together."""
        size = max(self.count.size, other.count.size)
        return ClassSums(
            _padded(self.count, size) + _padded(other.count, size),
            _padded(self.probability, size) + _padded(other.probability, size),
            _padded(self.negentropy, size) + _padded(other.negentropy, size),
        )

    def score(self) -> tuple[float, float]:
        """Mean and standard deviation over splits of exp(E KL(p(y|x) || p(y))) (Salimans et al. 2016).

        Raises:
            InputError: a split has fewer than 2 images, whose score is 1 whatever they show.
        """
        fewest = self.count.min() if self.count.size else 0
        if fewest < 2:
            raise InputError(
                f"inception score: {self.count.sum()} images leave {fewest} in a split; give at least 2 to each"
            )
        marginal = self.probability / self.count[:, None]
        log_marginal = np.log(np.where(marginal > 0, marginal, 1.0))
        scores = np.exp(self.negentropy / self.count - (marginal * log_marginal).sum(1))
        return float(scores.mean()), float(scores.std())


def inception_score(logits: NDArray[Any], split: int = SPLIT) -> tuple[float, float]:
    """Mean and standard deviation over splits, of logits, (N, classes). Raises InputError as `ClassSums.score`."""
    return ClassSums.of(logits, np.arange(len(logits)), split).score()


def _padded(sums: NDArray[Any], size: int) -> NDArray[Any]:
    return np.concatenate([sums, np.zeros((size - len(sums), *sums.shape[1:]), sums.dtype)])

"""How the learning rate goes over a run."""

from __future__ import annotations

import math
from typing import Protocol


class Scheduled(Protocol):
    """The part of a `train` table that says so."""

    @property
    def steps(self) -> int: ...
    @property
    def warmup(self) -> float:
        """Fraction of the steps in which the rate rises to its peak."""

    @property
    def final_lr(self) -> float:
        """Rate of the last step, as a fraction of the peak."""


def rate(step: int, train: Scheduled) -> float:
    """The learning rate of step 0 .. steps - 1 over its peak: linear up, then half a cosine down to final_lr."""
    rising = round(train.warmup * train.steps)
    if step < rising:
        return (step + 1) / rising
    way = (step - rising) / max(1, train.steps - 1 - rising)
    return train.final_lr + (1 - train.final_lr) * (1 + math.cos(math.pi * way)) / 2

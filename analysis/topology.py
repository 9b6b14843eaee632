"""What several seeds of one configuration agree on in their learned residual topology. numpy alone, no files.

The matrices of S seeds are stacked: p of shape (S, K+1, K+1), with p[s, i, j] the weight of state h_i in step j of seed
s. One mask of shape (K+1, K+1) says which (i, j) were trained. Sources are rows and steps are columns: the incoming
shortcuts of step j are column j.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Agreement:
    """How far seeds agree. A number is None where it is not defined: with one seed, or with constant coefficients."""

    seeds: int
    pearson: float | None  # mean over pairs of seeds
    pearson_chance: float | None  # expected after shuffling the sources of each step
    pearson_p: float | None
    strongest: float | None  # share of steps whose strongest source is the same, mean over pairs
    strongest_chance: float | None  # expected of random choices
    strongest_p: float | None
    layers: int  # steps that `strongest` is a share of
    permutations: int


@dataclass(frozen=True)
class Profile:
    """Where the weight of each step goes: shares of its incoming |p|, which sum to 1.

    Steps 2..K that have incoming weight in every seed; step 1 has one source, which is both first and previous.
    """

    steps: tuple[int, ...]
    first: Array  # (S, steps): h_0
    previous: Array  # (S, steps): h_{j-1}
    middle: Array  # (S, steps): all between

    def mean(self) -> tuple[float, float, float] | None:
        """First, previous and middle, mean over steps and seeds; None where no step has a weight."""
        if not self.steps:
            return None
        return float(self.first.mean()), float(self.previous.mean()), float(self.middle.mean())


def stack(snapshots: Sequence[Mapping[str, Any]]) -> tuple[Array, Mask]:
    """p (S, K+1, K+1) and the mask of trained (i, j), from the entries of one network in S topology.json files.

    Raises:
        ValueError: no snapshot, or networks that differ in depth or in what they train.
    """
    if not snapshots:
        raise ValueError("no topology to compare")
    trained = [np.array(snapshot["trained"], dtype=bool) for snapshot in snapshots]
    if any(mask.shape != trained[0].shape or (mask != trained[0]).any() for mask in trained):
        raise ValueError("the seeds' networks differ in depth or in the shortcuts that they train")
    return np.array([snapshot["p"] for snapshot in snapshots], dtype=np.float64), trained[0]


def allowed(snapshot: Mapping[str, Any]) -> Mask:
    """Which (i, j) a network may connect, (K+1, K+1): all i < j, or those of its mask."""
    upper = np.triu(np.ones((len(snapshot["p"]),) * 2, dtype=bool), 1)
    mask = snapshot.get("mask")
    return upper if mask is None else upper & np.array(mask, dtype=bool)


def profile(p: Array) -> Profile:
    """The depth profile of S seeds, p of shape (S, K+1, K+1)."""
    weight = np.abs(np.triu(p, 1))
    total = weight.sum(axis=1)  # (S, K+1), by step
    steps = [j for j in range(2, p.shape[-1]) if (total[:, j] > 0).all()]
    share = weight[:, :, steps] / total[:, None, steps]  # (S, K+1, steps)
    first = share[:, 0]
    previous = share[:, [j - 1 for j in steps], range(len(steps))]
    return Profile(tuple(steps), first, previous, share.sum(axis=1) - first - previous)


def agreement(p: Array, trained: Mask, permutations: int = 1000, seed: int = 0) -> Agreement:
    """Agreement of S seeds beside what chance would give.

    *pearson*: the mean over pairs of seeds of the Pearson correlation of their coefficients over all trained i < j.
    Seeds whose coefficients are all equal have no correlation and are left out of it.

    *strongest*: of the steps j >= 2 with at least two trained sources, the share whose incoming shortcut of largest |p|
    is the same, mean over pairs of seeds. Where a seed's largest is tied, one of the tied is drawn, in expectation:
    constant coefficients agree by chance only.

    *chance and p-values*: under the null hypothesis the sources of a step are exchangeable: the trained coefficients of
    each column are shuffled, independently for each column and each seed, so that the sums of columns stay. The chance
    level is the expectation of the statistic over all shuffles, exactly: for *strongest* the mean over steps of
    1 / (number of trained sources), for *pearson* above 0 where steps differ in their mean coefficient. The p-value is
    (1 + #{b: T_b >= T}) / (B + 1) with T the observed statistic and T_b that of B random shuffles; it is never 0.

    Args:
        p: (S, K+1, K+1).
        trained: (K+1, K+1).
        permutations: B.
        seed: of the shuffles.
    """
    rng = np.random.default_rng(seed)
    columns = [p[:, trained[:, j], j] for j in range(1, p.shape[-1]) if trained[:, j].any()]  # each (S, sources)
    choices = [np.abs(p[:, trained[:, j], j]) for j in range(2, p.shape[-1]) if trained[:, j].sum() > 1]
    return Agreement(
        len(p),
        *_tested(_standardised(columns), 1.0, permutations, rng),
        *_tested([_strongest(column) for column in choices], 1.0 / max(len(choices), 1), permutations, rng),
        layers=len(choices),
        permutations=permutations,
    )


def _tested(
    columns: Sequence[Array], scale: float, permutations: int, rng: np.random.Generator
) -> tuple[float | None, float | None, float | None]:
    """Of `scale` times the sum over columns (S, n) of `_pairs`: the observed value, the expected one, the p-value."""
    if not columns or len(columns[0]) < 2:
        return None, None, None
    observed = scale * sum(float(_pairs(column)) for column in columns)
    chance = scale * sum(float(_pairs(np.broadcast_to(c.mean(axis=1, keepdims=True), c.shape))) for c in columns)
    shuffled = np.zeros(permutations)
    for column in columns:
        copies = np.broadcast_to(column, (permutations, *column.shape))
        shuffled += scale * _pairs(rng.permuted(copies, axis=-1))
    above = int((shuffled >= observed - 1e-12).sum())
    return observed, chance, (1 + above) / (permutations + 1)


def _pairs(x: Array) -> Array:
    """The dot product of two seeds, mean over pairs of seeds: (.., S, n) -> (..)."""
    seeds = x.shape[-2]
    squared = (x.sum(axis=-2) ** 2).sum(axis=-1) - (x**2).sum(axis=(-2, -1))
    return np.asarray(squared / (seeds * (seeds - 1)))


def _standardised(columns: Sequence[Array]) -> list[Array]:
    """The columns of the seeds that are not constant, each seed with mean 0 and norm 1 over all its columns."""
    if not columns:
        return []
    flat = np.concatenate(columns, axis=1)  # (S, N)
    spread = flat.max(axis=1) - flat.min(axis=1)
    flat = flat[spread > 1e-12 * np.abs(flat).max(axis=1)]
    flat = flat - flat.mean(axis=1, keepdims=True)
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    return np.split(flat, np.cumsum([column.shape[1] for column in columns])[:-1], axis=1)


def _strongest(column: Array) -> Array:
    """One at each seed's largest source, shared where several are tied: (S, n) -> (S, n)."""
    top = column == column.max(axis=1, keepdims=True)
    return np.asarray(top / top.sum(axis=1, keepdims=True))

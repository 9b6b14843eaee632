"""How good drawn images are: they are drawn by all workers, and compared with real ones by a feature network.

Image n is of class n modulo the number of classes and comes from seed n, in every trial: arms are judged on the same
noise, and numbers do not depend on how many workers there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from analysis import names
from models.diffusion import Schedule
from models.dit import Dit
from models.sampling import sample
from orchestrator.diffuse.decode import Decode
from orchestrator.diffuse.picture import grid
from orchestrator.diffuse.spec import EvalSpec
from orchestrator.features.base import Network
from orchestrator.image_metrics.evaluate import REFERENCE_KEPT, compare
from orchestrator.image_metrics.statistics import Statistics
from orchestrator.images.base import Numbers
from orchestrator.pretrain.parallel import Workers

MOST_CLASSES = 10  # in the picture

Kept = dict[int, NDArray[np.float32]]  # number of an image -> its pixels (C, H, W)


class Drawn(NamedTuple):
    """What is known of some drawn images."""

    statistics: Statistics
    right: int  # images whose class the feature network names
    named: int  # images that it was asked about: none where its classes are others
    shown: Kept
    finite: bool  # whether all pixels are


class Judged(NamedTuple):
    metrics: dict[str, float]
    picture: bytes  # PNG: a row a class


class Judge:
    """Draws images and compares them.

    Args:
        real: statistics of real images.
        decode: pixels of what the network draws.
        mixed: draw under bfloat16 autocast.
    """

    def __init__(
        self,
        spec: EvalSpec,
        schedule: Schedule,
        features: Network,
        real: Statistics,
        decode: Decode,
        workers: Workers,
        *,
        mixed: bool,
    ) -> None:
        self.spec, self.schedule, self.features, self.real = spec, schedule, features, real
        self.decode, self.workers, self.mixed = decode, workers, mixed

    def __call__(self, network: Dit) -> Judged:
        """Of images drawn with the weights that the network has now. Every worker must call it.

        Where they are not finite their FID is none either, and nothing else is told.

        Raises:
            InputError: too few images for a metric.
        """
        metrics: dict[str, float] = {}
        for scale in self.spec.scales:
            drawn = _merged(self.workers.all(self._drawn(network, scale)))
            if not (drawn.finite and np.isfinite(drawn.statistics.pool.scatter).all()):
                return Judged({names.VAL_FID: math.nan}, b"")
            found = compare(self.real, drawn.statistics) if self.workers.rank == 0 else {}
            found = self.workers.all(found)[0]
            if drawn.named:
                found[names.ACCURACY] = drawn.right / drawn.named
            under = names.VAL if scale == 1 else names.GUIDED
            metrics |= {under + name: found[name] for name in names.IMAGE_METRICS if name in found}
        return Judged(metrics, grid(self._sheet(drawn.shown, network.spec.num_classes)))

    def _drawn(self, network: Dit, scale: float) -> Drawn:
        """This worker's share: every so many-th image."""
        own = np.arange(self.workers.rank, self.spec.samples, self.workers.count)
        return _merged(self._part(network, scale, some) for some in _batches(own, self.spec.batch))

    def _part(self, network: Dit, scale: float, numbers: Numbers) -> Drawn:
        classes = network.spec.num_classes
        labels = numbers % classes
        how = self.spec.sampling.model_copy(update={"cfg": scale})
        with torch.autocast(self.workers.device.type, torch.bfloat16, enabled=self.mixed):
            x = sample(network, self.schedule, labels.tolist(), numbers.tolist(), how, batch=self.spec.batch)
        pixels = self.decode(x)
        found = self.features.features(np.nan_to_num(pixels))
        told = found.logits.shape[1] == classes
        shown = set(self._shown(classes).flat)
        return Drawn(
            Statistics.of(self.features.hash, found, numbers, REFERENCE_KEPT),
            int((found.logits.argmax(1) == labels).sum()) if told else 0,
            len(numbers) if told else 0,
            {int(n): image for n, image in zip(numbers, pixels, strict=True) if n in shown},
            bool(np.isfinite(pixels).all()),
        )

    def _shown(self, classes: int) -> Numbers:
        """The images in the picture by number, (rows, columns): of up to MOST_CLASSES classes, evenly spaced."""
        rows = np.linspace(0, classes - 1, min(classes, MOST_CLASSES)).round().astype(np.int64)
        columns = max(1, min(self.spec.per_class, self.spec.samples // classes))
        numbers: Numbers = rows[:, None] + classes * np.arange(columns)
        return numbers[numbers[:, -1] < self.spec.samples]

    def _sheet(self, shown: Kept, classes: int) -> NDArray[np.float32]:
        return np.stack([np.stack([shown[int(number)] for number in row]) for row in self._shown(classes)])


def _merged(parts: Iterable[Drawn]) -> Drawn:
    """Of all parts, which are read one by one: each has covariances of as many numbers as features squared."""
    right, named, shown, finite = 0, 0, Kept(), True

    def statistics() -> Iterator[Statistics]:
        nonlocal right, named, finite
        for part in parts:
            right, named, finite = right + part.right, named + part.named, finite and part.finite
            shown.update(part.shown)
            yield part.statistics

    merged = Statistics.merged(statistics())
    return Drawn(merged, right, named, shown, finite)


def _batches(numbers: Numbers, size: int) -> Iterator[Numbers]:
    return (numbers[first : first + size] for first in range(0, len(numbers), size))

"""From images to the metrics: statistics of a set of images, the reference's kept in the cache, and both compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.features.base import Network
from orchestrator.image_metrics import SPLIT
from orchestrator.image_metrics.kernel import kid
from orchestrator.image_metrics.moments import distance
from orchestrator.image_metrics.neighbours import precision_recall
from orchestrator.image_metrics.statistics import Statistics
from orchestrator.images.base import Images, Numbers

BATCH = 250  # images that go through the network at once
REFERENCE_KEPT = 10_000  # reference images of precision, recall and KID
KID_SUBSET = 1000  # images; fewer where a set has fewer
PUBLISHED_COUNT = 50_000  # generated images of published numbers


def gather(
    network: Network,
    pixels: Callable[[Numbers], NDArray[Any]],
    numbers: Numbers,
    keep: int | None = None,
    split: int = SPLIT,
) -> Statistics:
    """Statistics of the images with these numbers; those of several workers are merged by `Statistics.merged`.

    Args:
        pixels: images by number, (N, C, H, W) in [-1, 1].
        keep, split: as `Statistics.of`.

    Raises:
        InputError: as `Network.features`, or there are no numbers.
    """
    batches = (numbers[first : first + BATCH] for first in range(0, numbers.size, BATCH))
    return Statistics.merged(
        Statistics.of(network.hash, network.features(pixels(some)), some, keep, split) for some in batches
    )


def reference(network: Network, images: Images, key: str, cache: Path) -> Statistics:
    """Statistics of real images, from the cache where they were gathered before.

    Pool features are kept of REFERENCE_KEPT of them, which are the same in every run.

    Args:
        key: names the images: a source's fingerprint and side.

    Raises:
        InputError: as `gather`, or the file in the cache is damaged.
    """
    file = cache / "image_statistics" / f"{key[:16]}-{len(images)}-{network.hash[:16]}.npz"
    if not file.exists():
        order = np.random.default_rng(0).permutation(len(images))
        found = gather(network, lambda some: images.read(order[some]).x, np.arange(len(images)), REFERENCE_KEPT)
        found.write(file)
    return Statistics.read(file, network.hash)


def compare(reference: Statistics, generated: Statistics, k: int = 3) -> dict[str, float]:
    """The metrics of generated images, and how many there are.

    FID and sFID of few images are too high; `kid` is not.

    Args:
        k: neighbours of precision and recall.

    Raises:
        InputError: the two are of different networks, or too few for a metric, in one line.
    """
    generated.check(reference.network, "generated images")
    precision, recall = precision_recall(reference.features, generated.features, k)
    size = min(KID_SUBSET, len(reference.features), len(generated.features))
    inception = generated.classes.score()
    kernel = kid(reference.features, generated.features, size=size)
    return {
        "fid": distance(reference.pool, generated.pool, "FID"),
        "sfid": distance(reference.spatial, generated.spatial, "sFID"),
        "inception_score": inception[0],
        "inception_score_sd": inception[1],
        "precision": precision,
        "recall": recall,
        "kid": kernel[0],
        "kid_sd": kernel[1],
        "images": float(generated.count),
    }


def comparable(network: Network, generated: Statistics) -> bool:
    """Whether these numbers may stand beside published ones: the same network, and as many images."""
    return network.published and generated.count == PUBLISHED_COUNT

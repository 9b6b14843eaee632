"""What the metrics need of a set of images: gathered over batches, merged over workers, kept in a file.

A file says which feature network it is of; another network's is refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError, one_line
from orchestrator.features.base import Features
from orchestrator.image_metrics import SPLIT
from orchestrator.image_metrics.inception import ClassSums
from orchestrator.image_metrics.moments import Moments
from orchestrator.images.base import Numbers
from orchestrator.record.jsonl import replace


@dataclass
class Statistics:
    """Of numbered images, in the eyes of one feature network."""

    network: str  # its hash
    pool: Moments
    spatial: Moments
    classes: ClassSums
    numbers: Numbers  # (N,) of the images whose pool features are kept
    features: NDArray[np.float32]  # (N, P)

    @classmethod
    def of(
        cls, network: str, features: Features, numbers: Numbers, keep: int | None = None, split: int = SPLIT
    ) -> Self:
        """Of images with these numbers; each number once in all.

        Args:
            network: the hash of the feature network.
            keep: pool features of images with numbers below it are kept; None: of all.
            split: images of a split of the inception score.
        """
        kept = numbers < (np.inf if keep is None else keep)
        return cls(
            network,
            Moments.of(features.pool),
            Moments.of(features.spatial),
            ClassSums.of(features.logits, numbers, split),
            numbers[kept],
            features.pool[kept].astype(np.float32),
        )

    @property
    def count(self) -> int:
        return self.pool.count

    @classmethod
    def merged(cls, parts: Iterable[Self]) -> Self:
        """Of all sets together, which are read one by one; in whatever order they come.

        Raises:
            InputError: they are of two networks, or there are none.
        """
        rest = iter(parts)
        first = next(rest, None)
        if first is None:
            raise InputError("statistics: no images; give at least 2")
        pool, spatial, classes = first.pool, first.spatial, first.classes
        numbers, features = [first.numbers], [first.features]
        for part in rest:
            part.check(first.network, "statistics")
            pool, spatial = pool.merge(part.pool), spatial.merge(part.spatial)
            classes = classes.merge(part.classes)
            numbers.append(part.numbers)
            features.append(part.features)
        order = np.argsort(np.concatenate(numbers), kind="stable")
        kept = np.concatenate(numbers)[order], np.concatenate(features)[order]
        return cls(first.network, pool, spatial, classes, *kept)

    def check(self, network: str, where: str) -> None:
        """Raise InputError where these are not of that feature network."""
        if self.network != network:
            raise InputError(
                f"{where}: of the feature network {self.network[:12]}, not {network[:12]}; "
                "numbers of two networks cannot be compared"
            )

    def write(self, file: Path) -> None:
        """Keep them; the file appears whole."""
        content = io.BytesIO()
        parts = {f"{name}_{key}": value for name, part in self._parts().items() for key, value in vars(part).items()}
        np.savez(content, network=self.network, numbers=self.numbers, features=self.features, **parts)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace(file, content.getvalue())

    @classmethod
    def read(cls, file: Path, network: str) -> Self:
        """What `write` kept.

        Raises:
            InputError: no such file, or one of another feature network.
        """
        try:
            with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as content:
                found = dict(content)
            pool, spatial = (
                Moments(int(found[f"{name}_count"]), found[f"{name}_mean"], found[f"{name}_scatter"])
                for name in ("pool", "spatial")
            )
            classes = ClassSums(*(found[f"classes_{key}"] for key in ("count", "probability", "negentropy")))
            statistics = cls(str(found["network"]), pool, spatial, classes, found["numbers"], found["features"])
        except Exception as error:  # whatever a damaged archive raises
            raise InputError(
                f"{file}: no statistics of images ({one_line(error)}); delete it and they are gathered again"
            ) from error
        statistics.check(network, str(file))
        return statistics

    def _parts(self) -> dict[str, Moments | ClassSums]:
        return {"pool": self.pool, "spatial": self.spatial, "classes": self.classes}

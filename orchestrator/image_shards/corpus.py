"""A folder of images as images: pixels mirrored, or latents drawn, as each image's own generator says."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError
from orchestrator.image_shards.folder import Manifest
from orchestrator.images.base import Batch, Draws, Images, Numbers, from_uint8
from orchestrator.shards.folder import check, read_as

if TYPE_CHECKING:
    from orchestrator.image_shards.vae import Vae

OPEN = 400  # shards mapped at once: each keeps a file open


class Shards(Images):
    """Images of a folder. Its arrays are mapped from disk, so nothing is read before it is used.

    Args:
        cache: remembers which files were found whole.

    Raises:
        InputError: no such folder, or a damaged one.
    """

    def __init__(self, folder: Path, cache: Path) -> None:
        self.manifest = read_as(Manifest, folder)
        check(folder, self.manifest, cache)
        self.shape, self.num_classes = self.manifest.shape, self.manifest.num_classes
        shards = self.manifest.shards
        self.labels = np.concatenate([np.load(folder / shard.labels_file.name) for shard in shards])
        self.ends = np.cumsum([shard.images for shard in shards])
        # Slices of a memmap itself are slow.
        self._array: Callable[[int], NDArray[Any]] = lru_cache(OPEN)(
            lambda shard: np.asarray(np.load(folder / shards[shard].arrays_file.name, mmap_mode="r"))
        )

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, numbers: Numbers) -> list[NDArray[Any]]:
        """What the arrays hold of each image."""
        shard = np.searchsorted(self.ends, numbers, side="right")
        place = numbers - self.ends[shard]  # from the end of its shard
        return [self._array(int(one))[at] for one, at in zip(shard, place, strict=True)]


class Pixels(Shards):
    """Pixels in [-1, 1]. Where an image has draws, half are mirrored.

    Args:
        flip: whether they are.
    """

    def __init__(self, folder: Path, cache: Path, flip: bool) -> None:
        super().__init__(folder, cache)
        self.flip = flip

    def read(self, numbers: Numbers, draws: Draws | None = None) -> Batch:
        rows = self.rows(numbers)
        if draws and self.flip:
            rows = [row[..., ::-1] if draw.integers(2) else row for row, draw in zip(rows, draws, strict=True)]
        return Batch(from_uint8(np.stack(rows)), self.labels[numbers])


class Latents(Shards):
    """Latents z = scale (mean + sd noise). Without draws: scale times the mean, unmirrored.

    Args:
        scale: brings them to about unit variance.
    """

    def __init__(self, folder: Path, cache: Path, scale: float) -> None:
        super().__init__(folder, cache)
        if self.manifest.holds != "latents":
            raise InputError(f"images.path: {folder} holds {self.manifest.holds}, not latents")
        self.scale = scale

    def check(self, vae: Vae, where: str) -> None:
        """Raise InputError where these latents are not of that autoencoder; `where` is the user's choice of it."""
        of = str(self.manifest.settings["vae_sha256"])
        if of != vae.sha256:
            raise InputError(f"{where}: is the autoencoder {vae.sha256[:12]}; the latents are of {of[:12]}")

    def read(self, numbers: Numbers, draws: Draws | None = None) -> Batch:
        rows = self.rows(numbers)  # (V, 2, C, H, W) each
        versions = len(rows[0]) if rows else 1
        if draws is None:
            z = np.stack([row[0, 0] for row in rows]).astype(np.float32)
        else:
            z = np.stack([_drawn(row[draw.integers(versions)], draw) for row, draw in zip(rows, draws, strict=True)])
        return Batch(np.float32(self.scale) * z, self.labels[numbers])


def _drawn(gaussian: NDArray[np.float16], draw: np.random.Generator) -> NDArray[np.float32]:
    """A sample of the Gaussian with this mean and log-variance, (2, C, H, W)."""
    mean, log_variance = gaussian.astype(np.float32)
    sample: NDArray[np.float32] = mean + np.exp(log_variance / 2) * draw.standard_normal(mean.shape, np.float32)
    return sample

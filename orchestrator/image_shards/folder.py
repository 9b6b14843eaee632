"""What a folder of images is: pixels or latents as arrays, made once for all trials.

    manifest.json             what the images are and how they were made, every file's size and hash, what was skipped
    images/00000.arrays.npy   pixels: (N, 3, size, size) of uint8; latents: (N, V, 2, C, H, W) of float16, where V is 2
                              with mirror images, else 1, and the next axis is mean and log-variance
    images/00000.labels.npy   (N,) of int64

The manifest is written last: a folder without one is not finished.
"""

from __future__ import annotations

from typing import Any, Literal

from models.spec import Spec
from orchestrator.shards.folder import Contents, File

IMAGES = "images"


class Shard(Spec):
    """Images in two files."""

    arrays_file: File
    labels_file: File
    images: int


class Skipped(Spec):
    """A picture that could not be used."""

    name: str
    fault: str


class Manifest(Contents):
    """What a folder of images holds."""

    format: Literal["images 1"] = "images 1"
    holds: Literal["pixels", "latents"]
    shape: tuple[int, int, int]  # (C, H, W) of one image
    flips: bool  # whether latents of mirror images are there too
    num_classes: int
    settings: dict[str, Any]  # what decided the images
    skipped: tuple[Skipped, ...]
    shards: tuple[Shard, ...]

    @property
    def files(self) -> list[File]:
        return [file for shard in self.shards for file in (shard.arrays_file, shard.labels_file)]

    @property
    def images(self) -> int:
        return sum(shard.images for shard in self.shards)

"""What is kept of pixels, and the images of one shard until they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator.image_shards.folder import Shard
from orchestrator.shards.writer import save

BATCH = 32  # images that are encoded at once; another number may change the last bits


class Encoder(Protocol):
    """What is kept of pixels."""

    @property
    def holds(self) -> Literal["pixels", "latents"]: ...
    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""

    @property
    def size(self) -> int:
        """Side of the pixels, which are square."""

    @property
    def flips(self) -> bool:
        """Whether mirror images are encoded too."""

    def encode(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """Of pixels, (N, 3, size, size): as the folder's arrays hold them, (N, ..)."""


class PixelEncoder:
    """The pixels as they are."""

    holds: Literal["pixels"] = "pixels"
    flips = False

    def __init__(self, size: int) -> None:
        self.size, self.shape = size, (3, size, size)

    def encode(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        return pixels


class Collected:
    """Images of the shard that is collected."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.pixels: list[NDArray[np.uint8]] = []  # that are not encoded yet
        self.arrays: list[NDArray[Any]] = []
        self.labels: list[int] = []

    def add(self, pixels: NDArray[np.uint8], label: int) -> None:
        self.pixels.append(pixels)
        self.labels.append(label)
        if len(self.pixels) == BATCH:
            self._encode()

    def write(self, out: Path, number: int) -> Shard:
        if self.pixels:
            self._encode()
        return Shard(
            arrays_file=save(out, f"images/{number:05d}.arrays.npy", np.concatenate(self.arrays)),
            labels_file=save(out, f"images/{number:05d}.labels.npy", np.array(self.labels, np.int64)),
            images=len(self.labels),
        )

    @property
    def classes(self) -> int:
        return 1 + max(self.labels, default=-1)

    def _encode(self) -> None:
        self.arrays.append(self.encoder.encode(np.stack(self.pixels)))
        self.pixels = []

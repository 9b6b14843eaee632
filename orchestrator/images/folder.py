"""Your own pictures as pixels: a folder of a folder a class, .parquet or WebDataset .tar; centre crop, mirror images.

They are decoded once for all trials, into the cache: 3 size^2 bytes a picture.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from orchestrator.images.base import Images, ImageSpec, Known

if TYPE_CHECKING:
    from orchestrator.image_shards.sources import Source


class PictureSpec(ImageSpec):
    """What sources of picture files share."""

    image_size: int = Field(default=64, ge=4, le=4096)  # side of the square in the middle, scaled to it
    flip: bool = True  # half are mirrored in training, as (seed, place in the stream) says
    faulty: Literal["refuse", "skip"] = "refuse"  # of unreadable pictures, which are named either way
    image_column: str = "image"  # of parquet: bytes, or {bytes, path}
    label_column: str = "label"  # of parquet: the number of the class

    @property
    def known(self) -> Known:
        return Known((3, self.image_size, self.image_size))

    @abstractmethod
    def pictures(self) -> Source:
        """The picture files. Raises InputError where there are none."""

    def fingerprint(self, cache: Path) -> str:
        return sha256(f"{self.pictures().fingerprint()} {self.image_size} {self.faulty}".encode()).hexdigest()

    def images(self, cache: Path) -> Images:
        from orchestrator.image_shards.collect import PixelEncoder
        from orchestrator.image_shards.corpus import Pixels
        from orchestrator.image_shards.prepare import Preparation

        source = self.pictures()
        files = source.fingerprint()
        folder = cache / "images" / sha256(f"{files} {self.image_size}".encode()).hexdigest()[:16]
        preparation = Preparation(
            source,
            PixelEncoder(self.image_size),
            {"files": files, "image_size": self.image_size},
            if_faulty=self.faulty,
            to_skip='images.faulty = "skip"',
            shard=min(4096, max(1, 2**28 // (3 * self.image_size**2))),  # at most 256 MB
            workers=os.cpu_count() or 1,
        )
        preparation.fill(folder, f"images cached in {folder}", wait=True)
        return Pixels(folder, cache, self.flip)


class Spec(PictureSpec):
    """Your own pictures: DIR/CLASS/PICTURE, parquet or WebDataset tars."""

    kind: Literal["folder"] = "folder"
    path: str = Field(min_length=1)  # a folder, a file, or a pattern of files

    def pictures(self) -> Source:
        from orchestrator.image_shards.sources import source

        return source(self.path, "images.path", self.image_column, self.label_column)

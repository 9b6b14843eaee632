"""Latents that `ancre data prepare --vae` has cached, drawn anew each time that they are met.

Sampling from the cached mean and variance is, in distribution, encoding each picture while training.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import Field

from orchestrator.data.base import existing
from orchestrator.errors import InputError
from orchestrator.images.base import Images, ImageSpec


class Spec(ImageSpec):
    """Latents made by `ancre data prepare --vae`."""

    kind: Literal["latents"] = "latents"
    path: str = Field(min_length=1)  # relative to where the command is run
    scale: float = Field(default=0.18215, gt=0)  # of stabilityai/sd-vae-ft-*

    def images(self, cache: Path) -> Images:
        from orchestrator.image_shards.corpus import Latents

        return Latents(self._folder(), cache, self.scale)

    def fingerprint(self, cache: Path) -> str:
        from orchestrator.image_shards.folder import Manifest
        from orchestrator.shards.folder import read_as

        return sha256(f"{read_as(Manifest, self._folder()).checksum} {self.scale}".encode()).hexdigest()

    def _folder(self) -> Path:
        found = existing(self.path)
        if found is None:
            raise InputError(f"images.path: {self.path!r} does not exist (looked from {Path.cwd()})")
        return found

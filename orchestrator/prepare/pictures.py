"""`ancre data prepare` of pictures: latents of a folder, of parquet, of tars, or of a dataset on the hub."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from models.spec import Spec
from orchestrator.data.base import existing
from orchestrator.image_shards.folder import Manifest
from orchestrator.image_shards.hub import IMAGENET, Hub
from orchestrator.image_shards.prepare import IfFaulty, Preparation
from orchestrator.image_shards.sources import Source, source
from orchestrator.image_shards.vae import LatentEncoder, Vae
from orchestrator.prepare.settings import HUB_NAME


class Pictures(Spec):
    """What a user asks for."""

    source: str = Field(min_length=1)  # imagenet, another name on the hub, or a path; with `images` just a name
    images: str | None = Field(default=None, min_length=1)  # a path
    vae: str = Field(min_length=1)  # a path, or a name on the hub
    config: str | None = None  # of a dataset on the hub
    split: str | None = None  # of a dataset on the hub; none: train
    image_size: int = Field(default=256, ge=8, le=4096)  # pixels
    flips: bool = False
    faulty: IfFaulty = "refuse"
    latent_channels: int = Field(default=4, ge=1)
    image_column: str = "image"
    label_column: str = "label"
    shard_images: int = Field(default=4096, ge=1, le=2**20)

    def open(self) -> Source:
        """Where the pictures are. Raises InputError where there are none."""
        if self.images is not None:
            return source(self.images, "--images", self.image_column, self.label_column)
        if self.source != "imagenet" and (existing(self.source) or not HUB_NAME.fullmatch(self.source)):
            return source(self.source, "SOURCE", self.image_column, self.label_column)
        name = IMAGENET if self.source == "imagenet" else self.source
        return Hub(name, self.config, self.split or "train", self.image_column, self.label_column, "--images PATH")


def prepare_pictures(asked: Pictures, out: Path, workers: int) -> Manifest:
    """Fill the folder `out` with latents, or go on with that, or find it done.

    Raises:
        InputError: the pictures, the VAE or the folder cannot be used, or the folder is of other settings.
    """
    pictures = asked.open()
    vae = Vae(asked.vae, f"--vae {asked.vae}")
    encoder = LatentEncoder(vae, asked.image_size, asked.flips, f"--vae {asked.vae}", asked.latent_channels)
    settings = {
        "files": pictures.fingerprint(),
        "vae_sha256": vae.sha256,
        "image_size": asked.image_size,
        "flips": asked.flips,
        "shard_images": asked.shard_images,
    }
    preparation = Preparation(
        pictures,
        encoder,
        settings,
        if_faulty=asked.faulty,
        to_skip="--faulty skip",
        shard=asked.shard_images,
        workers=workers,
    )
    return preparation.fill(out, f"--out {out}")

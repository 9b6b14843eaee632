"""What all trials on some images share: both sides of the images, the feature network, statistics of real images."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.dit_spec import DitSpec
from orchestrator.diffuse.decode import decoded_shape
from orchestrator.diffuse.spec import EvalSpec
from orchestrator.errors import InputError
from orchestrator.features.base import Network
from orchestrator.image_metrics.evaluate import reference
from orchestrator.image_metrics.statistics import Statistics
from orchestrator.images.base import Images, ImageSpec, Split

LEAST = 4  # real images: of precision and recall, whose neighbours are three


class Prepared(NamedTuple):
    split: Split
    key: str  # of the images: a hash of all that decides them
    features: Network
    real: Statistics  # of the reference, in the eyes of `features`


def prepare(images: ImageSpec, evaluate: EvalSpec, model: DitSpec, cache: Path, device: str) -> Prepared:
    """Open all, and make once what is not in the cache yet.

    Raises:
        InputError: missing or unreadable input, images that are not of the network's shape and classes, latents of
            another autoencoder, or real images that are too few or others than those drawn, in one line.
    """
    split, key = images.open(cache), images.fingerprint(cache)
    try:
        model.check_images(split.train.shape, split.train.num_classes)
    except ValueError as error:
        raise InputError(str(error)) from error
    drawn = decoded_shape(split.train, evaluate.vae)
    source = evaluate.reference or images
    sides = split if source is images else source.open(cache)
    side = "held_out" if len(sides.held_out) else "train"
    real = sides.held_out if len(sides.held_out) else sides.train
    _check(real, drawn, model.num_classes, "images" if source is images else "evaluate.reference")
    features = evaluate.features.open(cache, device)
    name = key if source is images else source.fingerprint(cache)
    return Prepared(split, key, features, reference(features, real, f"{name[:12]}-{side}", cache))


def _check(real: Images, drawn: tuple[int, int, int], num_classes: int, where: str) -> None:
    """That images of this shape and so many classes can be compared with the real ones."""
    if len(real) < LEAST:
        raise InputError(f"{where}: {len(real)} real images to compare with; give at least {LEAST}, or val_fraction 0")
    if (real.shape, real.num_classes) != (drawn, num_classes):
        found, wanted = (
            f"{' x '.join(map(str, shape))} of {classes} classes"
            for shape, classes in ((real.shape, real.num_classes), (drawn, num_classes))
        )
        raise InputError(f"{where}: real images are {found}; what is drawn is {wanted}")

"""What all trials on some images share: both sides of the images, the feature network, statistics of real images."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from models.dit_spec import DitSpec
from orchestrator.diffuse.decode import check_vae
from orchestrator.diffuse.spec import EvalSpec
from orchestrator.errors import InputError
from orchestrator.features.base import Network
from orchestrator.image_metrics.evaluate import reference
from orchestrator.image_metrics.statistics import Statistics
from orchestrator.images.base import Images, ImageSpec, Split


class Prepared(NamedTuple):
    split: Split
    key: str  # of the images: a hash of all that decides them
    features: Network
    real: Statistics  # of the reference, in the eyes of `features`


def prepare(images: ImageSpec, evaluate: EvalSpec, model: DitSpec, cache: Path, device: str) -> Prepared:
    """Open all, and make once what is not in the cache yet.

    Raises:
        InputError: missing or unreadable input, images that are not of the network's shape and classes, or latents of
            another autoencoder, in one line.
    """
    split, key = images.open(cache), images.fingerprint(cache)
    _check(split.train, model)
    if evaluate.vae:
        check_vae(split.train, evaluate.vae)
    features = evaluate.features.open(cache, device)
    source = evaluate.reference or images
    sides = split if source is images else source.open(cache)
    side = "held_out" if len(sides.held_out) else "train"
    name = key if source is images else source.fingerprint(cache)
    return Prepared(split, key, features, reference(features, getattr(sides, side), f"{name[:12]}-{side}", cache))


def _check(images: Images, model: DitSpec) -> None:
    if images.shape != model.shape:
        theirs, ours = (" x ".join(map(str, shape)) for shape in (images.shape, model.shape))
        raise InputError(f"model: channels and image_size say {ours}; the images are {theirs}")
    if images.num_classes != model.num_classes:
        raise InputError(f"model.num_classes is {model.num_classes}; the images have {images.num_classes} classes")

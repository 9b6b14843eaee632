"""From what the network draws to pixels: as they are, or by the autoencoder that made the latents it was trained on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from orchestrator.images.base import Images, ImageSpec, Subset
from orchestrator.images.latents import Spec as Latents

# (N, C, H, W) float32 on the CPU to (N, C', H', W') in [-1, 1], or NaN where it is not finite
Decode = Callable[[Tensor], NDArray[np.float32]]


def decoder(images: ImageSpec, vae: str | None, device: str) -> Decode:
    """How pixels are made of drawn images of such a source.

    Args:
        vae: a folder or a name on the hub.

    Raises:
        InputError: there is no such autoencoder.
    """
    if not isinstance(images, Latents) or vae is None:
        return lambda x: _clipped(x.numpy())
    from orchestrator.image_shards.vae import Vae

    network = Vae(vae, "evaluate.vae", device)
    return lambda x: _clipped(network.decode(x.numpy(), images.scale))


def _clipped(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.isfinite(pixels), pixels.clip(-1, 1), np.float32(np.nan))


def decoded_shape(images: Images, vae: str | None) -> tuple[int, int, int]:
    """(C, H, W) of the pixels of an image. Raises InputError where latents are of another autoencoder."""
    from orchestrator.image_shards.corpus import Latents as Cached
    from orchestrator.image_shards.vae import Vae

    cached = images.images if isinstance(images, Subset) else images
    if vae is None or not isinstance(cached, Cached):
        return images.shape
    network = Vae(vae, "evaluate.vae", "cpu")
    cached.check(network, "evaluate.vae")
    _, height, width = images.shape
    return 3, height * network.factor, width * network.factor

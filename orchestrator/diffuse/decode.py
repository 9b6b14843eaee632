"""From what the network draws to pixels: as they are, or by the autoencoder that made the latents it was trained on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from orchestrator.images.base import Images, ImageSpec, Subset
from orchestrator.images.latents import Spec as Latents

Decode = Callable[[Tensor], NDArray[np.float32]]  # (N, C, H, W) float32 on the CPU to (N, C', H', W') in [-1, 1]


def decoder(images: ImageSpec, vae: str | None, device: str) -> Decode:
    """How pixels are made of drawn images of such a source.

    Args:
        vae: a folder or a name on the hub.

    Raises:
        InputError: there is no such autoencoder.
    """
    if not isinstance(images, Latents) or vae is None:
        return lambda x: x.clamp(-1, 1).numpy()
    from orchestrator.image_shards.vae import Vae

    network = Vae(vae, "evaluate.vae", device)
    return lambda x: network.decode(x.numpy(), images.scale).clip(-1, 1)


def check_vae(images: Images, vae: str) -> None:
    """Raise InputError where latents are of another autoencoder."""
    from orchestrator.image_shards.corpus import Latents as Cached
    from orchestrator.image_shards.vae import Vae

    cached = images.images if isinstance(images, Subset) else images
    if isinstance(cached, Cached):
        cached.check(Vae(vae, "evaluate.vae", "cpu"), "evaluate.vae")

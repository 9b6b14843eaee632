"""The autoencoder between pixels and latents: diffusers' AutoencoderKL, from a folder of this machine or the hub."""

from __future__ import annotations

import json
import logging
import warnings
from hashlib import sha256
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.base import existing
from orchestrator.errors import InputError, one_line
from orchestrator.images.base import from_uint8

SCALE = 0.18215  # of latents, as published models of latent diffusion have it


class Vae:
    """An AutoencoderKL, in float32, in evaluation mode.

    Args:
        path: a folder that `save_pretrained` wrote, or a name on the hub (stabilityai/sd-vae-ft-ema).
        where: the name of the user's choice, for messages.

    Raises:
        InputError: diffusers is not installed, there is no such autoencoder, or it is of no RGB.
    """

    def __init__(self, path: str, where: str, device: str | None = None) -> None:
        import torch

        self.where = where
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.network = _loaded(path, where).to(self.device).eval().requires_grad_(False)
        reads, gives = self.network.config.in_channels, self.network.config.out_channels
        if (reads, gives) != (3, 3):
            raise InputError(f"{where}: reads {reads} channels and gives {gives}; wanted are the 3 of RGB, and 3")
        self.channels = int(self.network.config.latent_channels)
        self.factor = 2 ** (len(self.network.config.block_out_channels) - 1)  # pixels a latent, along a side

    @property
    def sha256(self) -> str:
        """Of architecture and weights."""
        config = {key: value for key, value in self.network.config.items() if not key.startswith("_")}
        digest = sha256(json.dumps(config, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        return digest.hexdigest()

    def encode(self, pixels: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Mean and log-variance, (N, 2, C, H, W), of pixels, (N, 3, size, size). Raises InputError: not finite."""
        import torch

        with torch.no_grad():
            x = torch.from_numpy(from_uint8(pixels)).to(self.device)
            gaussian = self.network.encode(x).latent_dist
            both = torch.stack([gaussian.mean, gaussian.logvar], 1).half().cpu().numpy()
        if not np.isfinite(both).all():
            raise InputError(f"{self.where}: gives latents that are not finite in float16")
        return np.asarray(both)

    def decode(self, latents: NDArray[np.float32], scale: float = SCALE) -> NDArray[np.float32]:
        """Pixels in about [-1, 1], (N, 3, size, size), of scaled latents, (N, C, H, W)."""
        import torch

        with torch.no_grad():
            pixels = self.network.decode(torch.from_numpy(latents).to(self.device) / scale).sample
        return np.asarray(pixels.float().cpu().numpy())


class LatentEncoder:
    """Latents of a VAE, with those of mirror images or without.

    Args:
        size: side of the pixels.
        channels, factor: what the latents must be: (channels, size / factor, size / factor).

    Raises:
        InputError: the VAE gives others.
    """

    holds: Literal["latents"] = "latents"

    def __init__(self, vae: Vae, size: int, flips: bool, where: str, channels: int = 4, factor: int = 8) -> None:
        self.vae, self.size, self.flips = vae, size, flips
        if size % vae.factor:
            raise InputError(f"{where}: {size} pixels are no multiple of {vae.factor}, the pixels of a latent")
        self.shape = (vae.channels, size // vae.factor, size // vae.factor)
        wanted = (channels, size // factor, size // factor)
        if self.shape != wanted:
            found, asked = (" x ".join(map(str, shape)) for shape in (self.shape, wanted))
            raise InputError(f"{where}: its latents of {size} pixels are {found}; they should be {asked}")

    def encode(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        versions = [pixels, np.ascontiguousarray(pixels[..., ::-1])] if self.flips else [pixels]
        return np.stack([self.vae.encode(version) for version in versions], 1)


def _loaded(path: str, where: str) -> Any:
    try:
        from diffusers import AutoencoderKL
    except ImportError as error:
        raise InputError(f"{where}: needs diffusers: pip install 'ancre[images]'") from error
    for library in ("diffusers", "huggingface_hub"):  # whose lines would stand before ours
        logging.getLogger(library).setLevel(logging.CRITICAL)
    local = existing(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network, loaded = AutoencoderKL.from_pretrained(
                str(local or path),
                local_files_only=local is not None,
                use_safetensors=True,
                low_cpu_mem_usage=False,
                output_loading_info=True,
            )
    except Exception as error:  # whatever a stranger's files and the network raise
        what = one_line(error).split(". ")[0]
        raise InputError(
            f"{where}: no folder of an AutoencoderKL with safetensors, or not one on the hub: {what}"
        ) from error
    for kind in ("missing", "unexpected"):
        if names := loaded[f"{kind}_keys"]:
            raise InputError(f"{where}: its weights are not those of its config.json: {min(names)} is {kind}")
    return network

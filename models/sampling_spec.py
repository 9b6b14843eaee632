"""How images are drawn from a diffusion model: method, steps and guidance. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from models.dit_spec import DitSpec
from models.spec import Spec


class SamplingSpec(Spec):
    """Without further numbers: 250 steps of the learned reverse process, without guidance (paper, section 5.2)."""

    method: Literal["ddpm", "ddim"] = "ddpm"
    steps: int = Field(default=250, ge=1, le=1000)  # of the schedule's 1000
    # Noise that DDIM adds, as a part of what the reverse process adds: at 0 the first noise decides the image.
    eta: float = Field(default=0.0, ge=0, le=1)
    cfg: float = Field(default=1.0, ge=0, le=1000)  # scale of guidance; 1 is none
    guidance_channels: int | None = Field(default=None, ge=1)  # how many channels are guided; None: all

    @model_validator(mode="after")
    def _check_eta(self) -> SamplingSpec:
        if self.method == "ddpm" and self.eta:
            raise ValueError(f"eta {self.eta} is read by method 'ddim' alone")
        return self

    def check(self, network: DitSpec) -> None:
        """Raise ValueError, in one line, where images of this network cannot be drawn so."""
        if self.guidance_channels is not None and self.guidance_channels > network.channels:
            raise ValueError(f"guidance_channels {self.guidance_channels}: the images have {network.channels} channels")

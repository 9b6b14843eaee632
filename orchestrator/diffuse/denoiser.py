"""The network with its loss, as workers train it."""

from __future__ import annotations

from torch import Tensor, nn

from models.diffusion import Schedule, training_loss
from models.dit import Dit


class Denoiser(nn.Module):
    """Images and what was drawn for them to their summed loss. It has no parameters of its own."""

    def __init__(self, network: Dit, schedule: Schedule) -> None:
        super().__init__()
        self.network, self.schedule = network, schedule

    def forward(self, x: Tensor, t: Tensor, y: Tensor, noise: Tensor) -> Tensor:
        """x and noise (B, C, H, W), t and y (B,) to a number."""
        return training_loss(self.schedule, self.network, x, t, y, noise).sum()

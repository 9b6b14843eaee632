"""The exponential moving average of a network's parameters, the topology's among them: what images are drawn with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Ema:
    """average <- decay * average + (1 - decay) * parameter after every step; at the start the parameters themselves.

    Averages lie beside the parameters, sharded like them, in float32 at least: in half precision they would not move.
    Buffers are no part of it.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay {decay} of the moving average is not in [0, 1)")
        self.decay = decay
        self.averages = {
            name: p.detach().to(torch.promote_types(p.dtype, torch.float32), copy=True)
            for name, p in network.named_parameters()
        }

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        for name, p in network.named_parameters():
            average = self.averages[name]
            average.lerp_(p.to(average.dtype), 1 - self.decay)

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by their parameters' names: they fit the network as well."""
        return dict(self.averages)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Raises ValueError, in one line, where the names are not those of this network's parameters."""
        if odd := state.keys() ^ self.averages.keys():
            raise ValueError(f"the moving averages are of another network: it differs in {min(odd)}")
        for name, average in self.averages.items():
            average.copy_(state[name])

    @torch.no_grad()
    def copy_to(self, network: nn.Module) -> None:
        for name, p in network.named_parameters():
            p.copy_(self.averages[name])

    @contextmanager
    def applied(self, network: nn.Module) -> Iterator[None]:
        """The network with its averages inside, with its own parameters again after."""
        own = [p.detach().clone() for p in network.parameters()]
        self.copy_to(network)
        try:
            yield
        finally:
            with torch.no_grad():
                for p, value in zip(network.parameters(), own, strict=True):
                    p.copy_(value)

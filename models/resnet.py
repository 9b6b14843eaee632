"""The networks of contrastive RL: an input layer, residual blocks of four layers through any topology, a head.

    post:  h_0 = unit(x),  r(h) = unit(unit(unit(unit(h)))),  unit = Dense, LayerNorm, activation;  head(h_K)
    pre:   the same layers in the same order, with shortcuts before each norm: h_0 = Dense(x),
           r = four times (LayerNorm, activation, Dense), head(activation(LayerNorm(h_K)))

A block returns r(h) alone; `Stack` decides how blocks are connected.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from models.resnet_spec import LAYERS_PER_BLOCK, ResnetSpec
from models.stack import Stack
from models.topology.base import TopologySpec

NORM_EPS = 1e-6
LOG_STD = (-5.0, 2.0)  # the range of an action's log standard deviation


class Trunk(nn.Module):
    """(.., inputs) to (.., outputs).

    Raises:
        ValueError: the topology cannot connect this many blocks.
    """

    def __init__(self, spec: ResnetSpec, topology: TopologySpec, inputs: int, outputs: int) -> None:
        super().__init__()
        dense = [nn.Linear(size, spec.width) for size in (inputs, *[spec.width] * spec.depth)]
        norms = [nn.LayerNorm(spec.width, NORM_EPS) if spec.layer_norm else nn.Identity() for _ in dense]
        activation = nn.ReLU if spec.activation == "relu" else nn.SiLU
        layers = [layer for parts in zip(dense, norms, strict=True) for layer in (*parts, activation())]
        first, size = 3 if spec.placement == "post" else 1, 3 * LAYERS_PER_BLOCK
        cuts = range(first, first + size * spec.num_blocks + 1, size)
        self.enter = nn.Sequential(*layers[:first])
        blocks = [nn.Sequential(*layers[start:stop]) for start, stop in pairwise(cuts)]
        self.stack = Stack(blocks, topology, width=spec.width, returns="branch")
        self.leave = nn.Sequential(*layers[cuts[-1] :])  # empty where shortcuts end behind an activation
        self.head = nn.Linear(spec.width, outputs)
        for layer in (*dense, self.head):
            nn.init.uniform_(layer.weight, -(layer.in_features**-0.5), layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.leave(self.stack(self.enter(x))))
        return out


class Actor(nn.Module):
    """A state and a goal, (.., S + G), to mean and log_std of the action before tanh, (.., A) each."""

    def __init__(self, spec: ResnetSpec, topology: TopologySpec, inputs: int, actions: int) -> None:
        super().__init__()
        self.trunk = Trunk(spec, topology, inputs, 2 * actions)  # both heads as one matrix: means, then spreads

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.trunk(observation).chunk(2, dim=-1)
        low, high = LOG_STD
        return mean, low + 0.5 * (high - low) * (torch.tanh(spread) + 1)

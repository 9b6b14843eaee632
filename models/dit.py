"""The diffusion transformer, as its figure: patches, blocks steered by time and class, head (arXiv 2212.09748).

With c the embedding of time and class, (b1, s1, g1, b2, s2, g2) = Linear(SiLU(c)) and LN without parameters, a block is

    x + r(x; c),   r = a + g2 MLP(LN(x + a)(1 + s2) + b2),   a = g1 Attention(LN(x)(1 + s1) + b1).

A block returns r, what it adds to the stream, its gates included; `Stack` decides how blocks are connected. So for a
topology F_j(x) = r_j(x; c) where the inner residual is dropped, and x + r_j(x; c) where it is kept. All that the gates'
layer holds is zero at the start (adaLN-Zero): r = 0, each block is the identity, and dropped steps only mix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, pixel_shuffle, pixel_unshuffle, scaled_dot_product_attention, silu

from models.dit_spec import SINUSOIDS, DitSpec
from models.stack import Stack, Topology
from models.topology.base import TopologySpec

NORM_EPS = 1e-6
MAX_PERIOD = 1e4  # of the sinusoids of positions and timesteps
LABEL_STD = 0.02


def waves(positions: Tensor, features: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of positions (N,) at 1e4^(-i / n) radians a step, i < n = features / 2: (N, n) each."""
    exponents = torch.arange(features // 2, device=positions.device, dtype=torch.float64) / (features // 2)
    angles = torch.outer(positions.double(), MAX_PERIOD**-exponents)
    return angles.cos().float(), angles.sin().float()


def grid(side: int, width: int) -> Tensor:
    """Fixed positions of side * side patches, row by row: (patches, width), a half for the column, one for the row."""
    cos, sin = waves(torch.arange(side), width // 2)
    line = torch.cat((sin, cos), dim=1)  # (side, width / 2)
    return torch.cat((line.repeat(side, 1), line.repeat_interleave(side, 0)), dim=1)


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """LN(x)(1 + scale) + shift: x (B, L, d), shift and scale (B, 1, d)."""
    return torch.addcmul(shift, layer_norm(x, x.shape[-1:], eps=NORM_EPS), 1 + scale)


class Attention(nn.Module):
    """Multi-head self-attention of all patches."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = scaled_dot_product_attention(*split)  # of q, k and v: (B, heads, L, D) each
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class Block(nn.Module):
    """r(x; c): what the block adds to x, see above."""

    def __init__(self, spec: DitSpec) -> None:
        super().__init__()
        self.modulation = nn.Linear(spec.width, 6 * spec.width)
        self.attention = Attention(spec.width, spec.heads)
        self.up = nn.Linear(spec.width, spec.mlp_ratio * spec.width)
        self.down = nn.Linear(spec.mlp_ratio * spec.width, spec.width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """x (B, L, d), condition SiLU(c) (B, 1, d) to (B, L, d)."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition).chunk(6, dim=-1)
        attended = gate1 * self.attention(modulated(x, shift1, scale1))
        hidden = self.up(modulated(x + attended, shift2, scale2))
        return torch.addcmul(attended, gate2, self.down(gelu(hidden, approximate="tanh")))


class Dit(nn.Module):
    """Noisy images, their timesteps and classes to the noise in them and the v of its variance (`models/diffusion`).

    Nothing here is random: whoever trains it drops labels, that is gives class number `num_classes` for some.
    """

    positions: Tensor

    def __init__(
        self, spec: DitSpec, topology: TopologySpec, *, checkpoint: bool = False, segment: int | None = None
    ) -> None:
        super().__init__()
        width, pixels = spec.width, spec.channels * spec.patch**2
        self.spec = spec
        self.patches = nn.Linear(pixels, width)
        self.time = nn.Sequential(nn.Linear(SINUSOIDS, width), nn.SiLU(), nn.Linear(width, width))
        self.labels = nn.Embedding(spec.num_classes + 1, width)
        blocks = [Block(spec) for _ in range(spec.depth)]
        self.stack = Stack(blocks, topology, width=width, returns="branch", checkpoint=checkpoint, segment=segment)
        self.modulation = nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, 2 * pixels)
        self.register_buffer("positions", grid(spec.image_size // spec.patch, width), persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.labels.weight, std=LABEL_STD)
        for zero in (*(block.modulation for block in blocks), self.modulation, self.head):
            nn.init.zeros_(zero.weight)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        """(B, 2C, H, W), the noise in the first C channels and v in the others.

        Args:
            x: (B, C, H, W).
            t: (B,) timesteps of the whole schedule, also where few of them are sampled.
            y: (B,) int64 classes, `num_classes` for none.

        Raises:
            ValueError: images of another shape.
        """
        if x.shape[1:] != self.spec.shape:
            raise ValueError(f"images of {tuple(x.shape[1:])}: this network reads {self.spec.shape}")
        dtype = self.patches.weight.dtype
        patches = pixel_unshuffle(x.to(dtype), self.spec.patch).flatten(2).transpose(1, 2)  # (B, L, C patch^2)
        h = self.patches(patches) + self.positions  # (B, L, d)
        c = self.time(torch.cat(waves(t, SINUSOIDS), dim=1).to(dtype)) + self.labels(y)
        condition = silu(c)[:, None]  # (B, 1, d)
        shift, scale = self.modulation(condition).chunk(2, dim=-1)
        out = self.head(modulated(self.stack(h, condition), shift, scale))  # (B, L, 2C patch^2)
        side = self.spec.image_size // self.spec.patch
        return pixel_shuffle(out.transpose(1, 2).unflatten(2, (side, side)), self.spec.patch)

    def topologies(self) -> dict[str, Topology]:
        """The topologies by the name of what they connect."""
        return {"dit": self.stack.topology}

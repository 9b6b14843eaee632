"""The LLaMA decoder, as its figure: embedding, blocks, final norm, head.

A block returns what it adds to the stream and has no identity of its own; `Stack` decides how blocks are connected, or
`ModuleStack` how their modules are. So the baseline and every topology share all lines of this file.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention, silu

from models.llama_spec import LlamaSpec
from models.losses import linear_cross_entropy
from models.modules import ModuleStack
from models.stack import Stack, Topology
from models.topology.base import TopologySpec
from models.topology.cascaded import Spec as Cascaded

Part = Literal["block", "attention", "feed_forward", "values"]


def rotation(length: int, features: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine of t * base^(-2i / D), the angle of position t and pair i: (length, D = features) each."""
    pairs = torch.arange(0, features, 2, device=device, dtype=torch.float32)
    positions = torch.arange(length, device=device, dtype=torch.float32)
    angles = torch.outer(positions, base ** (-pairs / features))
    return angles.cos().repeat(1, 2), torch.cat((-angles.sin(), angles.sin()), dim=1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (2104.09864): features i and i + D/2 of (.., length, D) are one rotating pair."""
    turned = torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
    return turned.type_as(x)  # the angles are float32 also where x is bfloat16


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, first: Tensor | None = None) -> Tensor:
        """`first`: values (batch, length, width) of the first block, to be averaged with these (2410.17897)."""
        split = (*x.shape[:-1], self.heads, -1)
        q = rotate(self.query(x).view(split).transpose(1, 2), cos, sin)  # (batch, heads, length, D)
        k = rotate(self.key(x).view(split).transpose(1, 2), cos, sin)
        values = self.value(x) if first is None else (self.value(x) + first) / 2
        v = values.view(split).transpose(1, 2)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))  # (batch, length, width)
        return out


class Gated(torch.autograd.Function):
    """silu(gate) * up. Backward computes silu(gate) again, rather than keep a third tensor of this size."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        to_silu = g * up
        to_gate = torch.ops.aten.silu_backward.grad_input(to_silu, gate, grad_input=to_silu)
        return to_gate, silu(gate).mul_(g)


class FeedForward(nn.Module):
    """SiLU-gated feed-forward network (2002.05202)."""

    def __init__(self, width: int, ffn_width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, ffn_width, bias=False)
        self.up = nn.Linear(width, ffn_width, bias=False)
        self.down = nn.Linear(ffn_width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(Gated.apply(self.gate(x), self.up(x)))  # type: ignore[no-untyped-call]
        return out


class Block(nn.Module):
    """r(x) = a + FFN(norm(x + a)) with a = attention(norm(x)): what the block adds, without x itself."""

    def __init__(self, spec: LlamaSpec) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(spec.width, eps=spec.norm_eps)
        self.attention = Attention(spec.width, spec.heads)
        self.feed_forward_norm = nn.RMSNorm(spec.width, eps=spec.norm_eps)
        self.feed_forward = FeedForward(spec.width, spec.ffn_width)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, first: Tensor | None = None, *, part: Part = "block"
    ) -> Tensor:
        """(batch, length, width) to the same; or what one module of the block returns, or the values it takes from x.

        All go through this one method, which is where torch.compile and FSDP take hold of a block.
        """
        if part == "values":  # of attention, before they are split over heads
            values: Tensor = self.attention.value(self.attention_norm(x))
            return values
        if part == "feed_forward":
            return self._fed(x)
        attended: Tensor = self.attention(self.attention_norm(x), cos, sin, first)
        return attended if part == "attention" else attended + self._fed(x + attended)

    def _fed(self, x: Tensor) -> Tensor:
        out: Tensor = self.feed_forward(self.feed_forward_norm(x))
        return out


class Llama(nn.Module):
    """Token numbers (batch, length) to the logits of each next token (batch, length, vocabulary).

    With the targets (batch, length), it gives the sum of their losses instead, which takes less time and far less
    memory than the logits and `cross_entropy` do; negative targets do not count.
    """

    def __init__(
        self, spec: LlamaSpec, topology: TopologySpec, *, checkpoint: bool = False, segment: int | None = None
    ) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = nn.Embedding(spec.vocab_size, spec.width)
        blocks = [Block(spec) for _ in range(spec.depth)]
        self.stack: Stack | ModuleStack
        if spec.granularity == "block":
            self.stack = Stack(
                blocks, topology, width=spec.width, returns="branch", checkpoint=checkpoint, segment=segment
            )
        elif segment not in (None, 1):
            raise ValueError(f"granularity {spec.granularity!r}: modules are run again one by one, not in segments")
        else:
            outer = topology if spec.granularity == "both" else Cascaded()
            self.stack = ModuleStack(blocks, outer, topology, width=spec.width, checkpoint=checkpoint)
        self.norm = nn.RMSNorm(spec.width, eps=spec.norm_eps)
        self.head = nn.Linear(spec.width, spec.vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=spec.init_std)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        spec = self.spec
        cos, sin = rotation(tokens.shape[1], spec.width // spec.heads, spec.rope_base, tokens.device)
        x = self.embedding(tokens)
        shared = (self.stack.blocks[0](x, cos, sin, part="values"),) if spec.value_residual else ()
        h = self.norm(self.stack(x, cos, sin, *shared))  # (batch, length, width)
        if targets is not None:
            return linear_cross_entropy(h, self.head.weight, targets)
        logits: Tensor = self.head(h)
        return logits

    def topologies(self) -> dict[str, Topology]:
        """The topologies by the name of what they connect: "decoder" its blocks, "ffn" its feed-forward networks."""
        if isinstance(self.stack, Stack):
            return {"decoder": self.stack.topology}
        outer = {"decoder": self.stack.topology} if self.spec.granularity == "both" else {}
        return outer | {"ffn": self.stack.ffn_topology}

"""What a contrastive-RL network is made of: its sizes and what they cost. No torch.

    unit(x) = activation(LayerNorm(Dense(x))),   block = four units,   depth = 4 * num_blocks

The input layer is one more unit and is not counted in the depth, nor is the head (Wang et al., arXiv 2503.14858).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from models.spec import Spec
from models.topology.base import TopologySpec

if TYPE_CHECKING:
    from models.resnet import Actor, Trunk

LAYERS_PER_BLOCK = 4
MAX_BLOCKS = 256


class ResnetSpec(Spec):
    """A residual MLP. `{"depth": 16}` is the same spec as `{"num_blocks": 4}`."""

    num_blocks: int = Field(default=4, ge=1, le=MAX_BLOCKS)
    width: int = Field(default=256, ge=1)
    activation: Literal["swish", "relu"] = "swish"
    layer_norm: bool = True
    # Where shortcuts begin and end. post: behind an activation, as published. pre: before the norm, so that states are
    # never activated themselves and the last norm and activation come before the head (He et al., arXiv 1603.05027).
    placement: Literal["post", "pre"] = "post"

    @model_validator(mode="before")
    @classmethod
    def _expand_depth(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "depth" not in value:
            return value
        depth, rest = value["depth"], {name: given for name, given in value.items() if name != "depth"}
        if "num_blocks" in rest:
            raise ValueError("give num_blocks or depth, not both")
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1 or depth % LAYERS_PER_BLOCK:
            near = f"; the nearest is {_nearest(depth)}" if isinstance(depth, int) else ""
            raise ValueError(f"depth {depth!r} is not a multiple of {LAYERS_PER_BLOCK}, the layers of a block{near}")
        return rest | {"num_blocks": depth // LAYERS_PER_BLOCK}

    @property
    def depth(self) -> int:
        """Hidden layers, as papers count them."""
        return LAYERS_PER_BLOCK * self.num_blocks

    def num_params(self, inputs: int, outputs: int) -> int:
        """Trained numbers of a network of these sizes, the topology's excluded."""
        norms = 2 * self.width * (self.depth + 1) * self.layer_norm
        return (
            (inputs + 1) * self.width + self.depth * (self.width + 1) * self.width + norms + (self.width + 1) * outputs
        )

    def flops(self, inputs: int, outputs: int) -> int:
        """Floating-point operations of one sample's forward pass: its matrix products alone."""
        return 2 * self.width * (inputs + self.depth * self.width + outputs)

    def encoder(self, inputs: int, outputs: int, topology: TopologySpec) -> Trunk:
        """A freshly initialised network, (.., inputs) to (.., outputs)."""
        from models.resnet import Trunk

        return Trunk(self, topology, inputs, outputs)

    def actor(self, inputs: int, actions: int, topology: TopologySpec) -> Actor:
        """A freshly initialised policy, (.., inputs) to mean and log_std, (.., actions) each."""
        from models.resnet import Actor

        return Actor(self, topology, inputs, actions)


def _nearest(depth: int) -> int:
    return LAYERS_PER_BLOCK * min(max(round(depth / LAYERS_PER_BLOCK), 1), MAX_BLOCKS)

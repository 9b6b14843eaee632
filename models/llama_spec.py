"""What a LLaMA decoder is made of: its sizes, by name or number, and what they cost. No torch.

`{"size": "60m"}` and the seven numbers it stands for are the same spec, so they are the same configuration in a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from models.optim.parts import Shape
from models.spec import Spec
from models.topology.base import TopologySpec

if TYPE_CHECKING:
    from models.llama import Llama

# 60m to 1b: Table 8 of the paper, with a vocabulary of 32000. nano and micro learn on a CPU.
SIZES: dict[str, dict[str, int]] = {
    "nano": {"width": 64, "ffn_width": 128, "depth": 6, "heads": 4, "vocab_size": 512},
    "micro": {"width": 128, "ffn_width": 344, "depth": 12, "heads": 4, "vocab_size": 2048},
    "60m": {"width": 512, "ffn_width": 1376, "depth": 8, "heads": 8},
    "130m": {"width": 768, "ffn_width": 2048, "depth": 12, "heads": 12},
    "350m": {"width": 1024, "ffn_width": 2736, "depth": 24, "heads": 16},
    "1b": {"width": 2048, "ffn_width": 5461, "depth": 24, "heads": 32},
}


class LlamaSpec(Spec):
    """A decoder of `depth` blocks with an untied head and no biases.

    `{"size": name}` fills in the numbers of `SIZES[name]`; numbers given beside it win.
    """

    width: int = Field(ge=1)
    ffn_width: int = Field(ge=1)
    depth: int = Field(ge=1)
    heads: int = Field(ge=1)
    vocab_size: int = Field(default=32000, ge=2)
    rope_base: float = Field(default=1e4, gt=0)
    norm_eps: float = Field(default=1e-6, gt=0)
    init_std: float = Field(default=0.02, gt=0)
    # Every attention averages its values with the first block's (2410.17897). Dumped, and so hashed, only where set.
    value_residual: bool = Field(default=False, exclude_if=lambda on: not on)
    # Which states the topology connects (paper, Table 1): inputs of blocks, of feed-forward networks, or of both, each
    # with coefficients of its own; models/modules.py. Dumped only where it is not "block".
    granularity: Literal["block", "ffn", "both"] = Field(default="block", exclude_if=lambda value: value == "block")

    @model_validator(mode="before")
    @classmethod
    def _expand_size(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "size" not in value:
            return value
        size, numbers = value["size"], {name: given for name, given in value.items() if name != "size"}
        if not isinstance(size, str) or size not in SIZES:
            raise ValueError(f"no size {size!r} (there are: {', '.join(SIZES)})")
        return SIZES[size] | numbers

    @model_validator(mode="after")
    def _check_heads(self) -> LlamaSpec:
        if self.width % self.heads:
            near = min((n for n in range(1, self.width + 1) if self.width % n == 0), key=lambda n: abs(n - self.heads))
            raise ValueError(f"{self.heads} heads do not divide width {self.width}; the nearest that does is {near}")
        if self.width // self.heads % 2:
            raise ValueError(
                f"width / heads = {self.width // self.heads} must be even: rotary embeddings turn features in pairs"
            )
        return self

    def num_params(self) -> int:
        """Trained numbers without the topology's: embedding, head, norms, 4 attention and 3 FFN matrices a block."""
        block = 4 * self.width**2 + 3 * self.width * self.ffn_width + 2 * self.width
        return 2 * self.vocab_size * self.width + self.depth * block + self.width

    def num_coefficients(self, topology: TopologySpec) -> int:
        """Trained numbers that the topology adds."""
        networks = 2 if self.granularity == "both" else 1
        return networks * topology.num_coefficients(self.depth, self.width)

    def shapes(self, topology: TopologySpec) -> tuple[Shape, ...]:
        """All trained parameters, the topology's among them, as `num_params` and `num_coefficients` count them."""
        return (
            Shape((self.vocab_size, self.width), "table", 2),  # embedding, head
            Shape((self.width, self.width), "matrix", 4 * self.depth),  # query, key, value, out
            Shape((self.ffn_width, self.width), "matrix", 2 * self.depth),  # gate, up
            Shape((self.width, self.ffn_width), "matrix", self.depth),  # down
            Shape((self.width,), "vector", 2 * self.depth + 1),  # norms
            Shape((self.num_coefficients(topology),), "topology"),
        )

    def flops_per_token(self, length: int) -> float:
        """Floating-point operations to train on one token of a sequence of `length`, forward and backward.

        6 for each number that multiplies a token (all but the embedding and the norms), plus causal attention: scores
        and weighted values cost 4 * width per key, three times that with backward, over (length + 1) / 2 keys.
        """
        matrices = self.num_params() - self.vocab_size * self.width - (2 * self.depth + 1) * self.width
        if self.value_residual:
            matrices += self.width**2  # the first block's values are computed once for all
        return 6 * matrices + 6 * self.depth * self.width * (length + 1)

    def activation_bytes(self, *, bfloat16: bool, checkpoint: bool, segment: int = 1) -> int:
        """Bytes that the blocks keep per token for the backward pass.

        A block keeps 11 tensors of the width (norms 2 + 2, their outputs 2, q, k, v, attention twice) and 3 of the FFN
        width, float32; under bfloat16 autocast the norms' 4 stay float32. Recomputing keeps what every
        `segment`-th block reads and, one segment at a time, its blocks; where the topology connects modules it keeps
        what both modules of a block read.
        """
        if bfloat16:
            block = (4 * 4 + 10 * 2) * self.width + 3 * 2 * self.ffn_width
        else:
            block = 11 * 4 * self.width + 3 * 4 * self.ffn_width
        if not checkpoint:
            return self.depth * block
        states = -(-self.depth // segment) if self.granularity == "block" else 2 * self.depth
        return states * 4 * self.width + segment * block

    def build(self, topology: TopologySpec, *, checkpoint: bool = False, segment: int | None = None) -> Llama:
        """The decoder, freshly initialised, on torch's current default device.

        Args:
            checkpoint: run blocks again in the backward pass instead of keeping their activations: one by one, or in
                the segments of a sparse topology.
            segment: run so many blocks again together.

        Raises:
            ValueError: in one line, where the topology cannot connect the blocks, or not in such segments.
        """
        from models.llama import Llama

        return Llama(self, topology, checkpoint=checkpoint, segment=segment)

"""What a diffusion transformer is made of: its sizes, by name or number, and what they cost. No torch.

`{"size": "b/2"}` is DiT-B with patches of 2 x 2 (Peebles and Xie, arXiv 2212.09748, Table 1); it and the numbers it
stands for are the same spec. What the network reads is a latent image, or with one or three channels the pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from models.optim.parts import Shape
from models.spec import Spec
from models.topology.base import TopologySpec

if TYPE_CHECKING:
    from models.dit import Dit

# s to xl: Table 1 of 2212.09748. nano and micro learn on a CPU. Each with any patch of PATCHES, as "s/2".
SIZES: dict[str, dict[str, int]] = {
    "nano": {"width": 64, "depth": 6, "heads": 4},
    "micro": {"width": 128, "depth": 12, "heads": 4},
    "s": {"width": 384, "depth": 12, "heads": 6},
    "b": {"width": 768, "depth": 12, "heads": 12},
    "l": {"width": 1024, "depth": 24, "heads": 16},
    "xl": {"width": 1152, "depth": 28, "heads": 16},
}
PATCHES = (2, 4, 8)
SINUSOIDS = 256  # of a timestep


class DitSpec(Spec):
    """`depth` blocks over the patches of a square image. Without further numbers: ImageNet's latents at 256 pixels.

    `{"size": name}` fills in the numbers of that size; numbers given beside it win.
    """

    width: int = Field(ge=1)
    depth: int = Field(ge=1)
    heads: int = Field(ge=1)
    patch: int = Field(ge=1)
    image_size: int = Field(default=32, ge=1)  # side of what is read: of the latent, an eighth of the image's
    channels: int = Field(default=4, ge=1)
    num_classes: int = Field(default=1000, ge=1)  # class number num_classes is the null class, for guidance
    mlp_ratio: int = Field(default=4, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _expand_size(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "size" not in value:
            return value
        size, numbers = value["size"], {name: given for name, given in value.items() if name != "size"}
        name, _, patch = size.partition("/") if isinstance(size, str) else ("", "", "")
        if name not in SIZES or patch not in map(str, PATCHES):
            raise ValueError(f"no size {size!r} (there are: {', '.join(SIZES)}, each with /2, /4 or /8, such as 'b/2')")
        return SIZES[name] | {"patch": int(patch)} | numbers

    @model_validator(mode="after")
    def _check_divisors(self) -> DitSpec:
        for name, of in (("heads", "width"), ("patch", "image_size")):
            part, whole = getattr(self, name), getattr(self, of)
            if whole % part:
                near = min((n for n in range(1, whole + 1) if whole % n == 0), key=lambda n: abs(n - part))
                raise ValueError(f"{name} {part} does not divide {of} {whole}; the nearest that does is {near}")
        if self.width % 4:
            raise ValueError(
                f"width {self.width} must be a multiple of 4: a position is sine and cosine of row and column"
            )
        return self

    def check_classes(self, classes: Iterable[int]) -> None:
        """Raise ValueError, in one line, at the first that is no class of this network."""
        for label in classes:
            if not 0 <= label < self.num_classes:
                raise ValueError(f"class {label}: this network knows the classes 0 to {self.num_classes - 1}")

    def check_images(self, shape: tuple[int, int, int] | None, num_classes: int | None) -> None:
        """Raise ValueError, in one line, where images (C, H, W) of so many classes are not for it; None: not known."""
        if shape not in (None, self.shape):
            theirs, ours = (" x ".join(map(str, one)) for one in (shape or (), self.shape))
            raise ValueError(f"model: channels and image_size say {ours}; the images are {theirs}")
        if num_classes not in (None, self.num_classes):
            raise ValueError(f"model.num_classes is {self.num_classes}; the images have {num_classes} classes")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image."""
        return self.channels, self.image_size, self.image_size

    @property
    def tokens(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch) ** 2

    def shapes(self, topology: TopologySpec) -> tuple[Shape, ...]:
        """All trained parameters, the topology's among them."""
        d, mlp, pixels = self.width, self.mlp_ratio * self.width, self.channels * self.patch**2
        return (
            Shape((d, pixels), "table"),  # patch embedding
            Shape((d, SINUSOIDS), "table"),  # time embedding, first layer
            Shape((d, d), "table"),  # and second
            Shape((self.num_classes + 1, d), "table"),  # labels
            Shape((6 * d, d), "matrix", self.depth),  # shift, scale and gate, twice
            Shape((3 * d, d), "matrix", self.depth),  # query, key, value
            Shape((d, d), "matrix", self.depth),  # out
            Shape((mlp, d), "matrix", self.depth),  # up
            Shape((d, mlp), "matrix", self.depth),  # down
            Shape((2 * d, d), "table"),  # shift and scale before the head
            Shape((2 * pixels, d), "table"),  # head
            Shape((d,), "vector", 3 + 2 * self.depth),  # biases from here
            Shape((6 * d,), "vector", self.depth),
            Shape((3 * d,), "vector", self.depth),
            Shape((mlp,), "vector", self.depth),
            Shape((2 * d,), "vector"),
            Shape((2 * pixels,), "vector"),
            Shape((self.num_coefficients(topology),), "topology"),
        )

    def num_params(self) -> int:
        """Trained numbers without the topology's."""
        d, pixels = self.width, self.channels * self.patch**2
        embeddings = d * (pixels + SINUSOIDS + d + self.num_classes + 1 + 3)
        block = d * ((10 + 2 * self.mlp_ratio) * d + 11 + self.mlp_ratio)
        return embeddings + self.depth * block + 2 * d * (d + 1) + 2 * pixels * (d + 1)

    def num_coefficients(self, topology: TopologySpec) -> int:
        """Trained numbers that the topology adds."""
        return topology.num_coefficients(self.depth, self.width)

    def flops_per_image(self) -> int:
        """Floating-point operations to train on one image, forward and backward.

        6 for each number that multiplies a token or, in what depends on time and label alone, an image; 4 in the first
        layers, whose input needs no gradient. Attention's scores and weighted values cost 4 * width per key, three
        times that with backward.
        """
        d, pixels, depth = self.width, self.channels * self.patch**2, self.depth
        token = 6 * (depth * (4 + 2 * self.mlp_ratio) * d**2 + 2 * pixels * d) + 4 * pixels * d
        attention = 12 * depth * d * self.tokens
        image = 6 * (d**2 + depth * 6 * d**2 + 2 * d**2) + 4 * SINUSOIDS * d
        return self.tokens * (token + attention) + image

    def activation_bytes(self, *, bfloat16: bool, checkpoint: bool, segment: int = 1) -> int:
        """Bytes that the blocks keep per image for the backward pass.

        Of each token a block keeps 12 tensors of the width (norms 2 + 2, what is made of them 2, q, k, v, attention,
        and what gates multiply 2) and 2 of the MLP's, float32; under bfloat16 autocast the norms' 4 stay float32.
        Recomputing keeps what every `segment`-th block reads and, one segment at a time, its blocks.
        """
        mlp = self.mlp_ratio * self.width
        block = (4 * 4 + 8 * 2) * self.width + 2 * 2 * mlp if bfloat16 else 12 * 4 * self.width + 2 * 4 * mlp
        if not checkpoint:
            return self.tokens * self.depth * block
        return self.tokens * (-(-self.depth // segment) * 4 * self.width + segment * block)

    def build(self, topology: TopologySpec, *, checkpoint: bool = False, segment: int | None = None) -> Dit:
        """The network, freshly initialised, on torch's current default device.

        Args:
            checkpoint: run blocks again in the backward pass instead of keeping their activations: one by one, or in
                the segments of a sparse topology.
            segment: run so many blocks again together.

        Raises:
            ValueError: in one line, where the topology cannot connect the blocks, or not in such segments.
        """
        from models.dit import Dit

        return Dit(self, topology, checkpoint=checkpoint, segment=segment)

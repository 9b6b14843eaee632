"""What an image source is: numbered images with a class each, of one shape, split into two sides.

Every file in this folder defines one `Spec`; its name is its kind. Reading imports no torch, and a spec no numpy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic import Field, model_validator

from models.spec import Spec
from orchestrator.errors import InputError

if TYPE_CHECKING:  # a plan needs no arrays
    import numpy as np
    from numpy.typing import NDArray

Numbers: TypeAlias = "NDArray[np.int64]"
Draws: TypeAlias = "Sequence[np.random.Generator]"  # one an image: what it draws depends on no other image


class Batch(NamedTuple):
    """Some images and their classes."""

    x: NDArray[np.float32]  # (N, C, H, W): pixels in [-1, 1], or scaled latents
    y: Numbers  # (N,)


class Images(ABC):
    """Numbered images, 0 .. len - 1."""

    shape: tuple[int, int, int]  # (C, H, W)
    num_classes: int

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def read(self, numbers: Numbers, draws: Draws | None = None) -> Batch:
        """The images of these numbers.

        Args:
            draws: of each image, for what training varies (a flip, a latent's noise); None: nothing is varied.

        Raises:
            InputError: an image cannot be read; it is named.
        """


@dataclass
class Subset(Images):
    """Some of the images, numbered anew."""

    images: Images
    numbers: Numbers

    def __post_init__(self) -> None:
        self.shape, self.num_classes = self.images.shape, self.images.num_classes

    def __len__(self) -> int:
        return self.numbers.size

    def read(self, numbers: Numbers, draws: Draws | None = None) -> Batch:
        return self.images.read(self.numbers[numbers], draws)


class Split(NamedTuple):
    """The two sides of a source."""

    train: Images
    held_out: Images  # empty where val_fraction is 0


class Known(NamedTuple):
    """Of images; None: not before they are read."""

    shape: tuple[int, int, int] | None = None
    num_classes: int | None = None
    total: int | None = None


class ImageSpec(Spec):
    """Where images come from."""

    kind: str
    val_fraction: float = Field(default=0.0, ge=0, lt=1)  # held out: the same images in every run

    @model_validator(mode="after")
    def _check_count(self) -> ImageSpec:
        if self.known.total is not None:
            self._held_out(self.known.total)
        return self

    @property
    def known(self) -> Known:
        """What is known before they are read."""
        return Known()

    @abstractmethod
    def images(self, cache: Path) -> Images:
        """All of them, in an order that depends on the source alone.

        Args:
            cache: where what is made once for all trials lies.

        Raises:
            InputError: missing, empty or unreadable input, in one line.
        """

    @abstractmethod
    def fingerprint(self, cache: Path) -> str:
        """A hash of all that decides the images: what is made from them is cached under it. Raises as `images`."""

    def open(self, cache: Path) -> Split:
        """The images of both sides. Raises InputError as `images`, and where a side would be empty."""
        images = self.images(cache)
        try:
            count = self._held_out(len(images))
        except ValueError as error:
            raise InputError(f"images.{error}") from error
        import numpy as np

        order = np.random.default_rng(0).permutation(len(images))
        return Split(Subset(images, np.sort(order[count:])), Subset(images, np.sort(order[:count])))

    def _held_out(self, of: int) -> int:
        """How many images are. Raises ValueError where a side would be empty."""
        count = round(self.val_fraction * of)
        if (self.val_fraction and not count) or count == of:
            raise ValueError(f"val_fraction {self.val_fraction}: holds out {count} of {of} images")
        return count


def to_uint8(x: NDArray[Any]) -> NDArray[np.uint8]:
    """Pixels in [-1, 1] as 0 .. 255; what lies outside is clipped."""
    import numpy as np

    return np.rint((x + 1) * 127.5).clip(0, 255).astype(np.uint8)


def from_uint8(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Pixels 0 .. 255 as -1 .. 1."""
    import numpy as np

    return pixels.astype(np.float32) / np.float32(127.5) - 1

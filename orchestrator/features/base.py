"""What a feature network is: images to the three arrays of which the image metrics are functions.

Every file in this folder defines one `Spec`; its name is its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from models.spec import Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Features(NamedTuple):
    """What a network says of N images."""

    pool: NDArray[Any]  # (N, P): of FID, KID, precision and recall
    spatial: NDArray[Any]  # (N, S): of sFID
    logits: NDArray[Any]  # (N, classes), of IS


class Network(ABC):
    """A feature network, ready to use."""

    name: str
    hash: str  # of its weights and of how images go in: statistics of another hash are refused
    published: bool = False  # whether published numbers are of this network

    @abstractmethod
    def features(self, x: NDArray[Any]) -> Features:
        """Of pixels in [-1, 1], (N, C, H, W).

        Raises:
            InputError: it takes no images of this shape, or gives something else than features.
        """


class FeatureSpec(Spec):
    """Which feature network."""

    kind: str

    @abstractmethod
    def open(self, cache: Path, device: str = "cpu") -> Network:
        """The network.

        Args:
            cache: where what is trained here lies.

        Raises:
            InputError: its file is missing or is no such network, in one line.
        """

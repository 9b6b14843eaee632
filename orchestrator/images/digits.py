"""1,797 real handwritten digits, 8 x 8 pixels of 17 grey levels, which ship with scikit-learn; no download.

They are the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak; UCI Machine Learning
Repository, 1998, CC BY 4.0). A mirrored digit is none, so nothing is flipped.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from orchestrator.images.base import Batch, Draws, Images, ImageSpec, Known, Numbers


class Digits(Images):
    """All 1,797."""

    shape = (1, 8, 8)
    num_classes = 10

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        self.x = (digits.images[:, None] / 8 - 1).astype(np.float32)  # grey levels 0 .. 16
        self.y = digits.target.astype(np.int64)

    def __len__(self) -> int:
        return len(self.y)

    def read(self, numbers: Numbers, draws: Draws | None = None) -> Batch:
        return Batch(self.x[numbers], self.y[numbers])


class Spec(ImageSpec):
    """scikit-learn's handwritten digits: 10 classes, 1 x 8 x 8 pixels."""

    kind: Literal["digits"] = "digits"
    val_fraction: float = Field(default=0.2, ge=0, lt=1)

    @property
    def known(self) -> Known:
        return Known(Digits.shape, Digits.num_classes, 1797)

    def images(self, cache: Path) -> Images:
        return Digits()

    def fingerprint(self, cache: Path) -> str:
        digits = Digits()
        return sha256(digits.x.tobytes() + digits.y.tobytes()).hexdigest()

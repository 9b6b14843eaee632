"""A picture file as pixels: cropped to the square in its middle, scaled down; or what is wrong with it, in words.

Pillow decodes without Python's lock, so threads decode side by side.
"""

from __future__ import annotations

import warnings
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".gif", ".tif", ".tiff")


class Faulty(Exception):  # noqa: N818 - a verdict on a picture
    """A picture that cannot be used; the text says why."""


def decode(content: bytes, size: int) -> NDArray[np.uint8]:
    """RGB pixels of the square in the middle, (3, size, size).

    A side of twice `size` or more is halved first, by means of 2 x 2 pixels, then the shorter side is made `size` by
    bicubic interpolation: the preparation of published ImageNet numbers (Dhariwal & Nichol 2021).

    Raises:
        Faulty: no picture, a damaged one, or one of so many pixels that Pillow holds it for a decompression bomb.
    """
    from PIL import Image, UnidentifiedImageError

    if not content:
        raise Faulty("zero bytes")
    _refuse_bombs()
    try:
        with Image.open(BytesIO(content)) as image:
            return _cropped(_rgb(image), size)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        pixels = " ".join(str(error).split()).partition(",")[0].lower()
        raise Faulty(f"{pixels} (a decompression bomb?)") from error
    except Faulty:
        raise
    except UnidentifiedImageError as error:
        raise Faulty("no picture") from error
    except Exception as error:  # each format raises its own
        raise Faulty(f"damaged ({' '.join(str(error).split()) or type(error).__name__})") from error


@cache
def _refuse_bombs() -> None:
    """Between one and two times its limit Pillow only warns."""
    from PIL import Image

    warnings.simplefilter("error", Image.DecompressionBombWarning)


def _rgb(image: Image) -> Image:
    """With 8 bits a channel."""
    from PIL.Image import fromarray

    if image.mode.startswith("I;16"):  # which Pillow would clip at 255
        return fromarray(np.rint(np.asarray(image) / 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise Faulty("32-bit or float pixels, of no known range; save it with 8 bits a channel")
    # Pillow warns of palettes with transparency, which go through RGBA.
    return (image.convert("RGBA") if image.mode == "P" else image).convert("RGB")


def _cropped(image: Image, size: int) -> NDArray[np.uint8]:
    from PIL.Image import Resampling

    while min(image.size) >= 2 * size:
        image = image.resize((image.width // 2, image.height // 2), Resampling.BOX)
    width, height = (max(size, round(side * size / min(image.size))) for side in image.size)
    across, down = image.width / width, image.height / height
    left, top = (width - size) // 2 * across, (height - size) // 2 * down
    # Only the square is made: of a picture a million times as wide as high the whole would not fit in memory.
    box = (left, top, left + size * across, top + size * down)
    pixels = np.asarray(image.resize((size, size), Resampling.BICUBIC, box))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))

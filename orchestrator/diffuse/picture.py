"""Images side by side, as a PNG file."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from orchestrator.images.base import to_uint8

GAP = 2  # pixels between images
LEAST = 40  # pixels of an image's side, as shown: smaller ones are drawn larger, each pixel a square
PAPER = 255


def grid(images: NDArray[np.float32]) -> bytes:
    """A PNG of images in [-1, 1], (rows, columns, C, H, W) with C = 1 or 3; what lies outside is clipped."""
    rows, columns, channels, height, width = images.shape
    times = -(-LEAST // min(height, width)) if min(height, width) < LEAST else 1
    pixels = to_uint8(images).repeat(times, 3).repeat(times, 4)
    step_y, step_x = height * times + GAP, width * times + GAP
    sheet = np.full((rows * step_y - GAP, columns * step_x - GAP, channels), PAPER, np.uint8)
    for row in range(rows):
        for column in range(columns):
            y, x = row * step_y, column * step_x
            sheet[y : y + step_y - GAP, x : x + step_x - GAP] = pixels[row, column].transpose(1, 2, 0)
    content = io.BytesIO()
    Image.fromarray(sheet[:, :, 0] if channels == 1 else sheet).save(content, "PNG")
    return content.getvalue()

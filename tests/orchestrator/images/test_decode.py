"""Picture files as pixels, and what is wrong with those that give none."""

import io
import struct
import zlib

import numpy as np
import pytest
from picture_files import picture, pixels
from PIL import Image

from orchestrator.image_shards.decode import Faulty, decode


def png(width: int, height: int) -> bytes:
    """A PNG that claims this size; its pixels are missing."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"")
    chunks = (struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (header, data, b"IEND"))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, form, **options)
    return content.getvalue()


def test_of_the_same_height_it_is_the_square_in_the_middle() -> None:
    assert np.array_equal(decode(picture(1), 24).transpose(1, 2, 0), pixels(1)[:, 4:28])
    tall = decode(picture(1, height=31, width=24), 24)
    assert np.array_equal(tall.transpose(1, 2, 0), pixels(1, 31, 24)[3:27])


def test_half_the_height_is_means_of_four_pixels() -> None:
    means = pixels(1)[:, 4:28].astype(float).reshape(12, 2, 12, 2, 3).mean((1, 3))
    assert np.abs(decode(picture(1), 12).transpose(1, 2, 0) - means).max() <= 1  # Pillow rounds rows, then columns


def test_one_colour_stays_that_colour_at_any_size() -> None:
    for size in (4, 7, 24, 50, 64):
        content = encoded(Image.new("RGB", (33, 57), (10, 200, 30)))
        assert (decode(content, size) == np.array([10, 200, 30])[:, None, None]).all()
        assert decode(content, size).shape == (3, size, size)


@pytest.mark.parametrize(("height", "width"), [(24, 32), (40, 31), (19, 90), (61, 20)])
def test_it_is_the_middle_of_the_whole_picture_scaled(height: int, width: int) -> None:
    image = Image.fromarray(pixels(3, height, width))
    size = 14
    while min(image.size) >= 2 * size:
        image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    across, down = (round(side * size / min(image.size)) for side in image.size)
    whole = np.asarray(image.resize((across, down), Image.Resampling.BICUBIC)).astype(int)
    top, left = (down - size) // 2, (across - size) // 2
    middle = whole[top : top + size, left : left + size]
    assert np.abs(decode(picture(3, height=height, width=width), size).transpose(1, 2, 0) - middle).max() <= 1


def test_a_long_thin_picture_takes_no_more_memory_than_itself() -> None:
    content = encoded(Image.new("RGB", (1_000_000, 1), (10, 200, 30)))
    assert (decode(content, 256) == np.array([10, 200, 30])[:, None, None]).all()


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1"])
def test_other_modes_become_rgb(mode: str) -> None:
    image = Image.fromarray(pixels(1)).convert(mode)
    content = encoded(image, "TIFF" if mode == "CMYK" else "PNG")
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))[:, 4:28]
    assert np.array_equal(decode(content, 24).transpose(1, 2, 0), expected)


@pytest.mark.parametrize(("form", "kind"), [("PNG", "<u2"), ("TIFF", "<u2"), ("TIFF", ">u2")])
def test_16_bits_are_scaled_to_8(form: str, kind: str) -> None:
    levels = np.arange(256).reshape(16, 16)
    content = encoded(Image.fromarray((257 * levels).astype(kind)), form)
    assert (decode(content, 16) == levels).all()


def test_a_palette_with_transparency_is_read() -> None:
    image = Image.fromarray(pixels(1)).convert("P")
    assert decode(encoded(image, transparency=bytes(range(256))), 8).shape == (3, 8, 8)


FAULTS = {
    "zero bytes": (b"", "zero bytes"),
    "text": (b"no picture at all", "no picture"),
    "32 bits": (encoded(Image.fromarray(np.full((8, 8), 70_000, np.int32)), "TIFF"), "32-bit or float pixels"),
    "floats": (encoded(Image.fromarray(np.full((8, 8), 0.5, np.float32)), "TIFF"), "32-bit or float pixels, .*8 bits"),
    "cut": (picture(1)[:700], "damaged"),
    "cut jpeg": (picture(1, "JPEG")[:300], "damaged"),
    "a bomb": (png(50_000, 50_000), r"image size \(2500000000 pixels\) exceeds limit .* \(a decompression bomb\?\)"),
    "half a bomb": (png(12_000, 9_000), r"image size \(108000000 pixels\) exceeds limit .* \(a decompression bomb\?\)"),
}


@pytest.mark.parametrize(("content", "fault"), FAULTS.values(), ids=FAULTS)
def test_faults_are_named(content: bytes, fault: str) -> None:
    with pytest.raises(Faulty, match=f"^{fault}"):
        decode(content, 8)

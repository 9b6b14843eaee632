"""The digits as images, their two sides, and the stream of them."""

from pathlib import Path

import numpy as np
import pytest

from orchestrator.image_shards.stream import Stream
from orchestrator.images.base import from_uint8, to_uint8
from orchestrator.images.digits import Digits, Spec


def test_pixels_are_the_grey_levels_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    x, y = Digits().read(np.arange(1797))
    assert x.dtype == np.float32 and x.shape == (1797, 1, 8, 8)
    assert x.min() == -1 and x.max() == 1
    assert np.array_equal((x[:, 0] + 1) * 8, load_digits().images)
    assert np.array_equal(np.bincount(y), np.bincount(load_digits().target))


def test_sides_are_apart_and_the_same_each_time(tmp_path: Path) -> None:
    train, held_out = Spec().open(tmp_path)
    assert (len(train), len(held_out)) == (1438, 359)
    sides = [{image.tobytes() for image in side.read(np.arange(len(side))).x} for side in (train, held_out)]
    assert not sides[0] & sides[1]
    again = Spec().open(tmp_path).held_out
    assert np.array_equal(again.read(np.arange(359)).x, held_out.read(np.arange(359)).x)
    assert set(held_out.read(np.arange(359)).y) == set(range(10))


def test_all_may_be_trained_on_but_not_held_out(tmp_path: Path) -> None:
    train, held_out = Spec(val_fraction=0).open(tmp_path)
    assert (len(train), len(held_out)) == (1797, 0)
    with pytest.raises(ValueError, match=r"val_fraction 0\.9999: holds out 1797 of 1797 images"):
        Spec(val_fraction=0.9999)
    with pytest.raises(ValueError, match="holds out 0 of 1797"):
        Spec(val_fraction=1e-4)


def test_what_is_known_before_reading_is_what_is_read() -> None:
    digits = Digits()
    assert Spec().known == (digits.shape, digits.num_classes, len(digits))


def test_each_pass_has_every_image_once_in_an_order_of_its_own() -> None:
    stream = Stream(Digits(), seed=3)
    passes = [stream.numbers(epoch * 1797, 1797) for epoch in (0, 1, 2)]
    assert all(np.array_equal(np.sort(numbers), np.arange(1797)) for numbers in passes)
    assert not np.array_equal(passes[0], passes[1])
    assert not np.array_equal(passes[0], Stream(Digits(), seed=4).numbers(0, 1797))


def test_a_batch_follows_from_its_place_alone() -> None:
    stream = Stream(Digits(), seed=3)
    across = stream.numbers(1700, 2000)  # the ends of one pass, a whole one, the beginning of a third
    for first, count in ((3594, 100), (1700, 97), (1797, 1797)):
        assert np.array_equal(across[first - 1700 : first - 1700 + count], Stream(Digits(), 3).numbers(first, count))
    shares = [stream.batch(1700, 50).x, stream.batch(1750, 50).x]
    assert np.array_equal(np.concatenate(shares), stream.batch(1700, 100).x)


def test_bytes_and_back() -> None:
    levels = np.arange(256, dtype=np.uint8)
    assert np.array_equal(to_uint8(from_uint8(levels)), levels)
    assert to_uint8(np.array([-1.5, 1.5])).tolist() == [0, 255]

"""Drawn images are judged as what they are: real ones as real, of each class, in the right place of the picture."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from analysis import names
from models.diffusion import linear
from orchestrator.diffuse.decode import decoder
from orchestrator.diffuse.evaluate import Judge
from orchestrator.diffuse.picture import GAP, grid
from orchestrator.diffuse.prepared import prepare
from orchestrator.features.file import FileNetwork
from orchestrator.images.digits import Spec as Digits
from orchestrator.pretrain.parallel import Workers


@pytest.fixture(scope="module")
def judged(trial, cache):
    """What is said of images that `replace` puts in the place of drawn ones: numbers (N,) to (N, 1, 8, 8)."""

    def judge(replace, samples: int = 400, features=None):
        spec = trial(evaluate={"samples": samples, "sampling": {"steps": 1}, "batch": 50})
        ready = prepare(spec.images, spec.evaluate, spec.model, cache, "cpu")
        places = iter(np.arange(samples).reshape(-1, 50))
        found = Judge(
            spec.evaluate,
            linear(),
            features or ready.features,
            ready.real,
            lambda x: replace(next(places), ready.split),
            Workers(0, 1, torch.device("cpu")),
            mixed=False,
        )(spec.model.build(spec.topology))
        return found, ready

    return judge


def of_their_class(numbers, split):
    """Real held-out digits: image n is of class n modulo 10."""
    x, y = split.held_out.read(np.arange(len(split.held_out)))
    return np.stack([x[y == n % 10][n // 10 % (y == n % 10).sum()] for n in numbers])


def test_real_images_are_recognised_and_near(judged):
    found, _ = judged(of_their_class)
    metrics = found.metrics
    assert metrics[names.VAL + names.ACCURACY] >= 0.95
    noise = judged(lambda numbers, _: np.random.default_rng(0).uniform(-1, 1, (50, 1, 8, 8)).astype(np.float32))[0]
    assert metrics[names.VAL_FID] < 0.1 * noise.metrics[names.VAL_FID]
    assert metrics[names.VAL + "precision"] > 0.95 > 0.5 > noise.metrics[names.VAL + "precision"]
    assert metrics.keys() == {names.VAL + name for name in names.IMAGE_METRICS}  # without guidance there is one set


def test_images_of_the_wrong_class_are_not(judged):
    found, _ = judged(lambda numbers, split: of_their_class(numbers + 1, split))
    assert found.metrics[names.VAL + names.ACCURACY] <= 0.05


def test_images_that_are_not_finite_have_no_fid(judged):
    found, _ = judged(lambda numbers, _: np.full((50, 1, 8, 8), np.nan, np.float32))
    assert found.metrics.keys() == {names.VAL_FID} and np.isnan(found.metrics[names.VAL_FID])


def test_one_image_that_is_not_finite_leaves_no_fid_whatever_judges(judged):
    """A network of bytes, which have no NaN."""

    def sums(pixels):
        return [pixels.reshape(len(pixels), 8, 8).sum(axis).astype(np.float32) for axis in (1, 2, 1)]

    def one(numbers, split):
        images = of_their_class(numbers, split)
        images[numbers == 77] = np.nan
        return images

    found, _ = judged(one, features=FileNetwork("sums", "0" * 64, sums))
    assert found.metrics.keys() == {names.VAL_FID} and np.isnan(found.metrics[names.VAL_FID]) and not found.picture


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_clipped_to_a_colour(value):
    x = torch.tensor([0.5, 7.0, -7.0, value])
    np.testing.assert_array_equal(decoder(Digits(), None, "cpu")(x), [0.5, 1, -1, np.nan])


def test_the_picture_has_a_row_a_class(judged):
    """Image n is drawn as the grey level of its number; row c, column k is image c + 10 k."""
    levels = np.arange(400) / 200 - 1
    found, _ = judged(lambda numbers, _: levels[numbers][:, None, None, None].repeat(8, 2).repeat(8, 3))
    sheet = np.array(Image.open(io.BytesIO(found.picture)))
    side = (sheet.shape[0] + GAP) // 10
    assert sheet.shape == (10 * side - GAP, 8 * side - GAP)
    middles = sheet[side // 2 :: side, side // 2 :: side]
    expected = np.rint((levels[np.arange(10)[:, None] + 10 * np.arange(8)] + 1) * 127.5)
    np.testing.assert_array_equal(middles, expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_grid_keeps_every_pixel(channels):
    images = np.random.default_rng(0).uniform(-1.2, 1.2, (2, 3, channels, 8, 8)).astype(np.float32)
    sheet = np.array(Image.open(io.BytesIO(grid(images)))).reshape(2 * 42 - 2, 3 * 42 - 2, channels)
    one = sheet[42 : 42 + 40 : 5, 84 : 84 + 40 : 5]  # row 1, column 2; each pixel is 5 x 5
    expected = np.rint((images[1, 2].clip(-1, 1) + 1) * 127.5).transpose(1, 2, 0)
    np.testing.assert_array_equal(one, expected)

"""Training on latents, judged on pixels: decoded by the autoencoder that made them, and by no other."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL
from picture_files import folder
from PIL import Image

from analysis import names
from orchestrator import cli
from orchestrator.diffuse.decode import decoder
from orchestrator.errors import InputError
from orchestrator.image_shards.stream import Stream


class Corners(torch.nn.Module):
    """Pixels of the first row, of the second, and three sums."""

    def forward(self, x):
        rows = x.float().flatten(2) / 255
        return rows[:, 0, :6], rows[:, 1, :6], rows[:, :3].sum(2)


def saved(path: Path, seed: int) -> Path:
    """A small AutoencoderKL with random weights: 8 pixels a latent."""
    torch.manual_seed(seed)
    blocks = 4
    AutoencoderKL(
        block_out_channels=(4,) * blocks,
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        norm_num_groups=2,
        latent_channels=4,
    ).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def latents(trial, tmp_path_factory):
    """A trial on latents of 40 pictures of 32 x 32; keyword arguments override its `evaluate` table."""
    place = tmp_path_factory.mktemp("latents")
    pictures, vae = folder(place / "pictures", 40), saved(place / "vae", 0)
    made = ["--images", str(pictures), "--vae", str(vae), "--out", str(place / "latents"), "--image-size", "32"]
    assert cli.main(["data", "prepare", "imagenet", *made]) == 0
    torch.jit.script(Corners()).save(place / "corners.pt")
    classes = sum(path.is_dir() for path in pictures.iterdir())

    def make(**evaluate):
        return trial(
            model={"image_size": 4, "channels": 4, "patch": 2, "num_classes": classes},
            images={"kind": "latents", "path": str(place / "latents")},
            train={"steps": 2, "batch": 4},
            evaluate={
                "samples": 12,
                "sampling": {"steps": 2, "cfg": 1.5, "guidance_channels": 3},
                "features": {"kind": "file", "path": str(place / "corners.pt")},
                "reference": {"kind": "folder", "path": str(pictures), "image_size": 32, "flip": False},
                "vae": str(vae),
            }
            | evaluate,
        )

    return make


def test_what_is_drawn_is_judged_and_shown_as_pixels(latents, run, cache):
    latents().prepare(cache)
    *_, last = run(latents())
    assert all(math.isfinite(value) for value in last.metrics.values())
    assert last.metrics[names.VAL_FID] > 0 and names.GUIDED + "fid" in last.metrics
    assert names.VAL_LOSS not in last.metrics  # nothing is held out
    assert Image.open(io.BytesIO(last.files[names.SAMPLES_FILE])).mode == "RGB"


def test_decoding_undoes_the_scale(latents, cache):
    """The mean of a latent, decoded by diffusers itself."""
    spec = latents()
    images = spec.images.open(cache).train
    z = torch.from_numpy(images.read(np.arange(3)).x)
    vae = AutoencoderKL.from_pretrained(spec.evaluate.vae).eval()
    with torch.no_grad():
        expected = vae.decode(z / 0.18215).sample.clamp(-1, 1).numpy()
    found = decoder(spec.images, spec.evaluate.vae, "cpu")(z)
    assert found.shape == (3, 3, 32, 32)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not torch.equal(z, torch.from_numpy(Stream(images, 0).batch(0, 3).x))  # drawn anew in training


def test_another_autoencoder_is_refused(latents, cache, tmp_path):
    other = saved(tmp_path / "vae", 1)
    with pytest.raises(InputError, match=r"^evaluate.vae: is the autoencoder \w{12}; the latents are of \w{12}$"):
        latents(vae=str(other)).prepare(cache)


def test_the_reference_has_the_size_of_decoded_latents(latents, cache):
    reference = latents().evaluate.reference.model_copy(update={"image_size": 16})
    with pytest.raises(
        InputError, match=r"real images are 3 x 16 x 16 of 3 classes; what is drawn is 3 x 32 x 32 of 3"
    ):
        latents(reference=reference).prepare(cache)


def test_real_images_must_be_named(latents):
    with pytest.raises(ValueError, match="should name the real images"):
        latents(reference=None)

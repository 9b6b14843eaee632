"""Latents: what is cached against diffusers itself, how they are drawn, and runs that are killed."""

import json
import logging.handlers
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL
from picture_files import folder, parquet, picture, pixels, tars
from safetensors.torch import load_file, save_file

from orchestrator import cli
from orchestrator.errors import InputError
from orchestrator.image_shards.corpus import Latents
from orchestrator.image_shards.folder import Manifest
from orchestrator.image_shards.stream import Stream
from orchestrator.image_shards.vae import Vae
from orchestrator.images.latents import Spec
from orchestrator.shards.folder import read_as

SIZE = 24


def saved(path: Path, blocks: int = 4, channels: int = 4, seed: int = 0, **more: int) -> Path:
    """A small AutoencoderKL with random weights: 2^(blocks - 1) pixels a latent."""
    torch.manual_seed(seed)
    vae = AutoencoderKL(
        block_out_channels=(4,) * blocks,
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        norm_num_groups=2,
        latent_channels=channels,
        **more,
    )
    vae.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def vae(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("vae"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("pictures"), 40)


def words(pictures: Path, vae: Path, out: Path, *more: str) -> list[str]:
    fixed = ["--images", str(pictures), "--vae", str(vae), "--out", str(out), "--image-size", str(SIZE)]
    return ["data", "prepare", "imagenet", *fixed, *more]


@pytest.fixture(scope="module")
def prepared(pictures: Path, vae: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 pictures with mirror images, in shards of 7."""
    out = tmp_path_factory.mktemp("latents") / "out"
    assert cli.main(words(pictures, vae, out, "--flips", "--shard-images", "7")) == 0
    return out


def encoded(vae: Path, mirrored: bool) -> np.ndarray:
    """Mean and log-variance of all pictures by diffusers, (40, 2, 4, 3, 3)."""
    x = np.stack([pixels(number)[:, 4:28].transpose(2, 0, 1) for number in range(40)]).astype(np.float32) / 127.5 - 1
    network = AutoencoderKL.from_pretrained(vae, low_cpu_mem_usage=False)
    with torch.no_grad():
        gaussian = network.encode(torch.from_numpy(x[..., ::-1].copy() if mirrored else x)).latent_dist
    return torch.stack([gaussian.mean, gaussian.logvar], 1).numpy()


def test_arrays_are_what_diffusers_gives(prepared: Path, vae: Path, tmp_path: Path) -> None:
    latents = Latents(prepared, tmp_path, 0.5)
    rows = np.stack(latents.rows(np.arange(40)))
    assert rows.dtype == np.float16 and rows.shape == (40, 2, 2, 4, 3, 3)
    for version, mirrored in enumerate((False, True)):
        np.testing.assert_allclose(rows[:, version], encoded(vae, mirrored), atol=2e-3)
    assert np.abs(rows[:, 0] - rows[:, 1]).max() > 0.1
    assert latents.labels.tolist() == [number * 3 // 40 for number in range(40)]


def test_without_draws_they_are_scaled_means(prepared: Path, vae: Path, tmp_path: Path) -> None:
    images = Spec(path=str(prepared)).images(tmp_path)
    assert (images.shape, images.num_classes, len(images)) == ((4, 3, 3), 3, 40)
    x, y = images.read(np.array([39, 0, 20]))
    np.testing.assert_allclose(x, 0.18215 * encoded(vae, False)[[39, 0, 20], 0], atol=1e-3)
    assert x.dtype == np.float32 and y.tolist() == [2, 0, 1]


def test_draws_have_mean_and_variance_of_encoding_on_line(prepared: Path, vae: Path, tmp_path: Path) -> None:
    """Each picture and its mirror image half of the time; of each, a Gaussian."""
    images = Spec(path=str(prepared), scale=2).images(tmp_path)
    draws = [np.random.default_rng((9, number)) for number in range(8000)]
    x = images.read(np.full(8000, 3), draws).x / 2
    both = np.stack([encoded(vae, mirrored)[3] for mirrored in (False, True)]).astype(np.float64)
    mean = both[:, 0].mean(0)
    variance = np.exp(both[:, 1]).mean(0) + both[:, 0].var(0)
    np.testing.assert_allclose(x.mean(0), mean, atol=5 * np.sqrt(variance.max() / 8000))
    np.testing.assert_allclose(x.var(0), variance, rtol=0.15)


def test_a_batch_follows_from_seed_and_place(prepared: Path, tmp_path: Path) -> None:
    images = Spec(path=str(prepared)).images(tmp_path)
    whole = Stream(images, seed=1).batch(30, 60).x
    assert np.array_equal(np.concatenate([Stream(images, 1).batch(30, 23).x, Stream(images, 1).batch(53, 37).x]), whole)
    assert not np.array_equal(Stream(images, 2).batch(30, 60).x, whole)
    assert len(np.unique(whole.reshape(60, -1)[:, 0])) == 60  # the same picture never gives the same latents


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("form", [parquet, tars])
def test_every_form_gives_the_same_arrays(form: Callable[..., Path], vae: Path, tmp_path: Path) -> None:
    for name, make in (("folder", folder), ("form", form)):
        assert cli.main(words(make(tmp_path / name), vae, tmp_path / f"{name} latents")) == 0
    one, other = (content(tmp_path / f"{name} latents") for name in ("folder", "form"))
    assert {name for name in one if one[name] != other[name]} == {"manifest.json"}


def commits(out: Path) -> int:
    file = out / "progress.jsonl"
    return max(0, file.read_bytes().count(b"\n") - 1) if file.exists() else 0


def test_killed_it_goes_on_to_the_same_bytes(
    pictures: Path, vae: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL after some commits; what was committed is not encoded again."""
    ask = words(pictures, vae, tmp_path / "out", "--flips", "--shard-images", "7")
    slow = (
        "import sys, time; from orchestrator import cli; from orchestrator.image_shards.vae import Vae\n"
        "quick = Vae.encode\n"
        "Vae.encode = lambda self, pixels: (time.sleep(0.2), quick(self, pixels))[1]; sys.exit(cli.main(sys.argv[1:]))"
    )
    process = subprocess.Popen([sys.executable, "-c", slow, *ask])
    while process.poll() is None and commits(tmp_path / "out") < 2:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    done = commits(tmp_path / "out")
    assert 2 <= done < 6
    encode, batches = Vae.encode, []
    monkeypatch.setattr(Vae, "encode", lambda self, pixels: (batches.append(len(pixels)), encode(self, pixels))[1])
    assert cli.main(ask) == 0
    assert sum(batches) == 2 * (40 - 7 * done)
    assert content(tmp_path / "out") == content(prepared)
    assert cli.main(ask) == 0  # done already
    assert sum(batches) == 2 * (40 - 7 * done)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the command says of bad input, in its one line."""

    def run(*words: str) -> str:
        capsys.readouterr()
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("ancre: ") and said.count("\n") == 1
        return said

    return run


def test_other_settings_or_pictures_are_refused(
    refused: Callable[..., str], pictures: Path, vae: Path, prepared: Path, tmp_path: Path
) -> None:
    assert "prepared with flips True, not False" in refused(*words(pictures, vae, prepared, "--shard-images", "7"))
    same = ("--flips", "--shard-images", "7")
    other = saved(tmp_path / "vae", seed=1)
    assert "prepared with vae_sha256" in refused(*words(pictures, other, prepared, *same))
    changed = folder(tmp_path / "pictures", 40)
    assert "prepared with files" in refused(*words(changed, vae, prepared, *same))


def test_a_vae_of_other_latents_is_refused(
    refused: Callable[..., str], pictures: Path, vae: Path, tmp_path: Path
) -> None:
    coarse, wide = saved(tmp_path / "coarse", blocks=3), saved(tmp_path / "wide", channels=16)
    out = tmp_path / "out"
    assert "its latents of 24 pixels are 4 x 6 x 6; they should be 4 x 3 x 3" in refused(*words(pictures, coarse, out))
    assert "its latents of 24 pixels are 16 x 3 x 3; they should be 4 x 3" in refused(*words(pictures, wide, out))
    assert cli.main(words(pictures, wide, out, "--latent-channels", "16")) == 0
    assert read_as(Manifest, out).shape == (16, 3, 3)
    uneven = words(pictures, vae, tmp_path / "uneven")
    uneven[-1] = "25"
    assert "25 pixels are no multiple of 8" in refused(*uneven)


def test_faulty_pictures(
    refused: Callable[..., str], vae: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused by name; after that, skipped by choice: the same folder goes on."""
    root = folder(tmp_path / "pictures")
    (root / "bee" / "005.png").write_bytes(b"")
    (root / "cat" / "010.png").write_bytes(picture(10)[:600])
    ask = words(root, vae, tmp_path / "out", "--shard-images", "4")
    assert re.search(
        r"bee/005\.png: zero bytes; mend or delete it, or skip such pictures: --faulty skip$", refused(*ask).strip()
    )
    assert commits(tmp_path / "out") == 1
    assert cli.main([*ask, "--faulty", "skip"]) == 0
    assert "10 images of 3 classes as latents of 4 x 3 x 3; 2 skipped" in capsys.readouterr().out
    manifest = read_as(Manifest, tmp_path / "out")
    assert [Path(one.name).name for one in manifest.skipped] == ["005.png", "010.png"]
    assert [shard.images for shard in manifest.shards] == [4, 4, 2]
    assert "bee/005.png: zero bytes" in refused(*ask)


def test_bad_words_are_one_line(refused: Callable[..., str], pictures: Path, vae: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "no folder of an AutoencoderKL with safetensors" in refused(*words(pictures, tmp_path, out))
    assert "--images: '/nowhere' does not exist" in refused(*words(Path("/nowhere"), vae, out))
    assert "--val: is not of pictures" in refused(*words(pictures, vae, out, "--val", "x"))
    ask = words(pictures, vae, out)
    del ask[ask.index("--vae") : ask.index("--vae") + 2]
    assert "--images: give --vae PATH too; a model of pixels needs no preparation" in refused(*ask)
    assert "--flips: is not of text" in refused(
        "data", "prepare", "x", "--tokenizer", "bpe", "--flips", "--out", str(out)
    )
    assert "give --tokenizer T for text, or --vae PATH for pictures" in refused(
        "data", "prepare", "x", "--out", str(out)
    )


def changed(vae: Path, copy: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """A copy of a VAE with other weights."""
    shutil.copytree(vae, copy)
    (file,) = copy.glob("*.safetensors")
    weights = load_file(file)
    change(weights)
    save_file(weights, file)
    return copy


WEIGHT = "encoder.conv_out.weight"
VAES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "a weight missing": (
        lambda vae, at: changed(vae, at, lambda weights: weights.pop(WEIGHT)),
        rf"its weights are not those of its config\.json: {WEIGHT} is missing$",
    ),
    "a weight too many": (
        lambda vae, at: changed(vae, at, lambda weights: weights.update(more=torch.zeros(1))),
        r"its weights are not those of its config\.json: more is unexpected$",
    ),
    "grey": (
        lambda vae, at: saved(at, in_channels=1),
        "reads 1 channels and gives 3; wanted are the 3 of RGB, and 3$",
    ),
    "a list as its config": (
        lambda vae, at: [shutil.copytree(vae, at), (at / "config.json").write_text("[1]")],
        "no folder of an AutoencoderKL with safetensors",
    ),
    "a pickle": (
        lambda vae, at: [shutil.copytree(vae, at), next(at.glob("*.safetensors")).rename(at / "a.bin")],
        "no folder of an AutoencoderKL with safetensors",
    ),
}


@pytest.mark.parametrize("case", VAES)
def test_another_vae_is_one_line(case: str, vae: Path, tmp_path: Path) -> None:
    """The libraries say nothing of their own."""
    make, line = VAES[case]
    make(vae, tmp_path / "at")
    said = logging.handlers.BufferingHandler(1000)
    logging.getLogger("diffusers").addHandler(said)
    try:
        with warnings.catch_warnings(record=True) as warned, pytest.raises(InputError, match=f"^--vae at: {line}"):
            warnings.simplefilter("always")
            Vae(str(tmp_path / "at"), "--vae at")
    finally:
        logging.getLogger("diffusers").removeHandler(said)
    assert not said.buffer and not warned


def test_weights_by_the_names_of_older_versions_are_the_same(vae: Path, tmp_path: Path) -> None:
    def rename(weights: dict[str, torch.Tensor]) -> None:
        for new, old in (
            (".to_q.", ".query."),
            (".to_k.", ".key."),
            (".to_v.", ".value."),
            (".to_out.0.", ".proj_attn."),
        ):
            for name in [name for name in weights if new in name]:
                weights[name.replace(new, old)] = weights.pop(name)

    assert Vae(str(changed(vae, tmp_path / "old", rename)), "x").sha256 == Vae(str(vae), "x").sha256


def test_latents_that_are_not_finite_name_the_vae(vae: Path, tmp_path: Path) -> None:
    huge = changed(vae, tmp_path / "huge", lambda weights: weights[WEIGHT].fill_(1e30))
    with pytest.raises(InputError, match=r"^--vae huge: gives latents that are not finite"):
        Vae(str(huge), "--vae huge").encode(np.stack([pixels(0)[:, 4:28].transpose(2, 0, 1)]))


def test_only_its_own_scratch_files_are_deleted(pictures: Path, vae: Path, tmp_path: Path) -> None:
    """Also in a folder that is not begun yet, which may hold hidden files."""
    out = tmp_path / "out"
    (out / ".git").mkdir(parents=True)
    for name in (".env", ".git/config"):
        (out / name).write_text("secret")
    (out / ".manifest.json.123").write_text("cut off")
    assert cli.main(words(pictures, vae, out)) == 0
    assert {path.name for path in out.iterdir()} == {".env", ".git", "images", "manifest.json"}
    assert (out / ".git" / "config").read_text() == "secret"
    (out / "images" / ".00007.labels.npy").write_text("cut off")
    assert cli.main(words(pictures, vae, out)) == 0
    assert {path.name for path in (out / "images").iterdir()} == {"00000.arrays.npy", "00000.labels.npy"}


def test_a_finished_folder_with_a_truncated_shard_is_named(
    refused: Callable[..., str], pictures: Path, vae: Path, prepared: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(prepared, tmp_path / "copy"))
    os.truncate(copy / "images" / "00002.arrays.npy", 100)
    said = refused(*words(pictures, vae, copy, "--flips", "--shard-images", "7"))
    assert "00002.arrays.npy: truncated: 100 bytes of" in said


def test_latents_are_of_one_vae(vae: Path, prepared: Path, tmp_path: Path) -> None:
    latents = Latents(prepared, tmp_path, 1)
    latents.check(Vae(str(vae), "sample.vae"), "sample.vae")
    with pytest.raises(InputError, match=r"^sample\.vae: is the autoencoder [0-9a-f]{12}; the latents are of [0-9a-f]"):
        latents.check(Vae(str(saved(tmp_path / "other", seed=1)), "sample.vae"), "sample.vae")


def test_a_full_disk_is_one_line_and_it_goes_on(
    refused: Callable[..., str], pictures: Path, vae: Path, prepared: Path, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the disk: shards of 7 are larger, labels and progress are not."""
    ask = words(pictures, vae, tmp_path / "out", "--flips", "--shard-images", "7")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        assert "File too large; once that is mended, the same command goes on" in refused(*ask)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert cli.main(ask) == 0
    assert content(tmp_path / "out") == content(prepared)


def test_a_damaged_folder_is_named(prepared: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(prepared, tmp_path / "copy"))
    file = copy / "images" / "00002.arrays.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"00002\.arrays\.npy: changed since it was written"):
        Spec(path=str(copy)).images(tmp_path)
    file.write_bytes(data[:-5])
    with pytest.raises(InputError, match=r"00002\.arrays\.npy: truncated: \d+ bytes of \d+"):
        Spec(path=str(copy)).images(tmp_path)


def test_folders_of_something_else_are_refused(tmp_path: Path, pictures: Path) -> None:
    from orchestrator.images.folder import Spec as Folder

    with pytest.raises(InputError, match=r"images\.path: '.*nowhere' does not exist"):
        Spec(path=str(tmp_path / "nowhere")).images(tmp_path)
    with pytest.raises(InputError, match=r"no manifest\.json in it"):
        Spec(path=str(pictures)).images(tmp_path)
    Folder(path=str(pictures), image_size=8).images(tmp_path)
    (made,) = (tmp_path / "images").iterdir()
    with pytest.raises(InputError, match="holds pixels, not latents"):
        Spec(path=str(made)).images(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"checksum": "", "format": 1}))
    with pytest.raises(InputError, match="of the format 1; wanted is 'images 1'"):
        Spec(path=str(tmp_path)).images(tmp_path)


def test_decoding_is_that_of_diffusers(vae: Path) -> None:
    z = np.random.default_rng(0).normal(size=(2, 4, 3, 3)).astype(np.float32)
    network = AutoencoderKL.from_pretrained(vae, low_cpu_mem_usage=False)
    with torch.no_grad():
        expected = network.decode(torch.from_numpy(z) / 0.18215).sample.numpy()
    np.testing.assert_allclose(Vae(str(vae), "vae", "cpu").decode(z), expected, atol=1e-5)

"""What every image source must do. A new file in `orchestrator/images` is tested by being there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from orchestrator import kinds
from orchestrator.image_shards.prepare import Preparation
from orchestrator.image_shards.sources import source
from orchestrator.image_shards.stream import Stream
from orchestrator.images.base import ImageSpec

pytestmark = pytest.mark.parametrize("kind", kinds.names("images"))


class Means:
    """Latents of a kind: means of the pixels, and no variance."""

    holds, shape, size, flips = "latents", (3, 1, 1), 8, False

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        means = pixels.astype(np.float16).mean((2, 3), keepdims=True)
        return np.stack([means, np.zeros_like(means)], 1)[:, None]


@pytest.fixture
def table(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A valid table of this kind: 20 pictures of two classes, where it brings none of its own."""
    import datasets

    random = np.random.default_rng(0)
    for number in range(20):
        file = tmp_path / "owner" / "set" / "ab"[number // 10] / f"{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = BytesIO()
        Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8)).save(content, "PNG")
        file.write_bytes(content.getvalue())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    if kind == "latents":
        pictures = source("owner/set", "images.path")
        options: Any = {"if_faulty": "refuse", "to_skip": "", "shard": 6, "workers": 1}
        Preparation(pictures, Means(), {}, **options).fill(tmp_path / "latents", "latents")
    paths = {"folder": {"path": "owner/set", "image_size": 8}, "hub": {"name": "owner/set", "image_size": 8}}
    yield {"kind": kind} | paths.get(kind, {}) | ({"path": "latents"} if kind == "latents" else {})


@pytest.fixture
def spec(table: dict[str, Any]) -> ImageSpec:
    parsed: ImageSpec = kinds.parse("images", table)
    return parsed


def test_spec_survives_json_and_hashing(kind: str, spec: ImageSpec) -> None:
    again = kinds.parse("images", json.loads(spec.model_dump_json()))
    assert again == spec and hash(again) == hash(spec)
    assert spec.kind == kind
    assert kinds.summary("images", kind)


def test_images_have_the_shape_and_classes_they_say(spec: ImageSpec, tmp_path: Path) -> None:
    images = spec.images(tmp_path)
    x, y = images.read(np.arange(len(images)))
    assert x.dtype == np.float32 and x.shape == (len(images), *images.shape) and np.isfinite(x).all()
    assert y.dtype == np.int64 and set(y) <= set(range(images.num_classes)) and len(set(y)) > 1


def test_sides_are_apart_and_come_again(table: dict[str, Any], tmp_path: Path) -> None:
    spec = kinds.parse("images", table | {"val_fraction": 0.25})
    sides = spec.open(tmp_path)
    count = len(spec.images(tmp_path))
    assert [len(side) for side in sides] == [count - round(count / 4), round(count / 4)]
    for side, again in zip(sides, spec.open(tmp_path), strict=True):
        numbers = np.arange(len(side))
        assert np.array_equal(side.read(numbers).x, again.read(numbers).x)
    seen = [{image.tobytes() for image in side.read(np.arange(len(side))).x} for side in sides]
    assert not seen[0] & seen[1]


def test_a_batch_does_not_depend_on_how_it_is_shared(spec: ImageSpec, tmp_path: Path) -> None:
    images = spec.images(tmp_path)
    first = len(images) - 7  # across the end of a pass
    whole = Stream(images, seed=3).batch(first, 20)
    parts = [Stream(images, seed=3).batch(first + at, 5) for at in (0, 5, 10, 15)]
    assert np.array_equal(np.concatenate([part.x for part in parts]), whole.x)
    assert np.array_equal(np.concatenate([part.y for part in parts]), whole.y)


def test_fingerprints_tell_sources_apart(table: dict[str, Any], spec: ImageSpec, tmp_path: Path) -> None:
    assert spec.fingerprint(tmp_path) == kinds.parse("images", table).fingerprint(tmp_path)
    change = {"folder": {"image_size": 4}, "hub": {"image_size": 4}, "latents": {"scale": 1}}.get(spec.kind)
    if change:
        assert spec.fingerprint(tmp_path) != kinds.parse("images", table | change).fingerprint(tmp_path)


def test_planning_imports_nothing_heavy(table: dict[str, Any], spec: ImageSpec) -> None:
    program = (
        "import json, sys\n"
        "from orchestrator import kinds\n"
        "kinds.parse('images', json.loads(sys.argv[1]))\n"
        "sys.exit(bool({'torch', 'pyarrow', 'PIL', 'sklearn', 'datasets', 'diffusers'} & set(sys.modules)))\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", program, json.dumps(table)], check=True, env=environment)

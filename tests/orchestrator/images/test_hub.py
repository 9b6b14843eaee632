"""Datasets of the hub by name: a folder that lies there under that name, and a hub that cannot be reached."""

from pathlib import Path

import numpy as np
import pytest
from picture_files import parquet, pixels

from orchestrator.errors import InputError
from orchestrator.images.base import from_uint8
from orchestrator.images.hub import Spec


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import datasets
    from huggingface_hub import constants

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    monkeypatch.chdir(tmp_path)


def test_a_dataset_is_read_by_its_name(tmp_path: Path) -> None:
    parquet(tmp_path / "owner" / "pictures")
    images = Spec(name="owner/pictures", image_size=24).images(tmp_path / "cache")
    x, y = images.read(np.arange(12))
    assert np.array_equal(x[7], from_uint8(pixels(7)[:, 4:28].transpose(2, 0, 1)))
    assert y.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_off_line_it_says_what_to_give_instead(tmp_path: Path) -> None:
    said = (
        r"^ILSVRC/imagenet-1k: the Hugging Face hub cannot be reached; "
        r'give images = \{ kind = "folder", path = \.\. \} instead: a folder of a folder a class, \.parquet'
    )
    with pytest.raises(InputError, match=said):
        Spec().images(tmp_path)


def test_a_wrong_column_or_split_is_one_line(tmp_path: Path) -> None:
    parquet(tmp_path / "owner" / "pictures")
    with pytest.raises(InputError, match="owner/pictures: no column 'img'; did you mean 'image'"):
        Spec(name="owner/pictures", image_column="img").images(tmp_path)
    with pytest.raises(InputError, match=r'owner/pictures tests: .*"tests"'):
        Spec(name="owner/pictures", split="tests").images(tmp_path)

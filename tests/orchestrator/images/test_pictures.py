"""Pictures of every form, as sources and as pixels in the cache."""

import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from picture_files import CLASSES, FORMS, folder, parquet, picture, pixels, tars

from orchestrator.errors import InputError
from orchestrator.image_shards.sources import source
from orchestrator.image_shards.stream import Stream
from orchestrator.images.base import from_uint8
from orchestrator.images.folder import Spec

EXPECTED = np.stack([pixels(number)[:, 4:28].transpose(2, 0, 1) for number in range(12)])  # at 24 pixels


@pytest.fixture(params=FORMS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Pictures 0 .. 11 in some form."""
    made: Path = FORMS[request.param](tmp_path / request.param)
    return made


def test_records_come_in_order_and_from_any_on(root: Path) -> None:
    records = [*source(str(root), "images.path").records()]
    assert [record.label for record in records] == [0] * 4 + [1] * 4 + [2] * 4
    assert [record.content for record in records] == [picture(number) for number in range(12)]
    assert len({record.name for record in records}) == 12
    for first in range(13):
        assert [*source(str(root), "images.path").records(first)] == records[first:]


def test_pixels_are_those_of_the_pictures(root: Path, tmp_path: Path) -> None:
    images = Spec(path=str(root), image_size=24).images(tmp_path / "cache")
    x, y = images.read(np.arange(12))
    assert (images.shape, images.num_classes, len(images)) == ((3, 24, 24), 3, 12)
    assert np.array_equal(x, from_uint8(EXPECTED))
    assert y.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert np.array_equal(images.read(np.array([7, 0, 7])).x, x[[7, 0, 7]])


def test_half_are_mirrored_as_seed_and_place_say(root: Path, tmp_path: Path) -> None:
    images = Spec(path=str(root), image_size=24).images(tmp_path / "cache")
    stream = Stream(images, seed=5)
    x, numbers = stream.batch(0, 240).x, stream.numbers(0, 240)
    plain = from_uint8(EXPECTED)[numbers]
    mirrored = (x == plain[..., ::-1]).all((1, 2, 3))
    assert np.array_equal(x[~mirrored], plain[~mirrored])
    assert 80 < mirrored.sum() < 160
    assert np.array_equal(Stream(images, seed=5).batch(100, 30).x, x[100:130])
    assert not np.array_equal(Stream(images, seed=6).batch(0, 240).x, x)
    unflipped = Spec(path=str(root), image_size=24, flip=False).images(tmp_path / "cache")
    assert np.array_equal(Stream(unflipped, seed=5).batch(0, 240).x, plain)


def test_they_are_decoded_once(root: Path, tmp_path: Path) -> None:
    spec = Spec(path=str(root), image_size=8)
    spec.images(tmp_path / "cache")
    (made,) = (tmp_path / "cache" / "images").iterdir()
    written = (made / "manifest.json").stat().st_mtime_ns
    spec.images(tmp_path / "cache")
    assert (made / "manifest.json").stat().st_mtime_ns == written
    assert {file.name for file in made.iterdir()} == {"manifest.json", "images"}
    Spec(path=str(root), image_size=4).images(tmp_path / "cache")
    assert len([*(tmp_path / "cache" / "images").iterdir()]) == 2


def spoil(root: Path) -> None:
    """The first picture of the last class has no bytes, the last one is cut."""
    (root / "cat" / "008.png").write_bytes(b"")
    (root / "cat" / "011.png").write_bytes(picture(11)[:500])


def test_faulty_pictures_are_refused_by_name(tmp_path: Path) -> None:
    spoil(folder(tmp_path / "pictures"))
    refusal = r'pictures/cat/008\.png: zero bytes; mend or delete it, or skip such pictures: images\.faulty = "skip"$'
    with pytest.raises(InputError, match=refusal):
        Spec(path=str(tmp_path / "pictures"), image_size=24).images(tmp_path / "cache")


def test_faulty_pictures_are_skipped_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(folder(tmp_path / "pictures"))
    spec = Spec(path=str(tmp_path / "pictures"), image_size=24, faulty="skip")
    x, y = spec.images(tmp_path / "cache").read(np.arange(10))
    assert np.array_equal(x, from_uint8(EXPECTED[[*range(8), 9, 10]]))
    assert y.tolist() == [0] * 4 + [1] * 4 + [2] * 2
    said = capsys.readouterr().out
    assert re.search(r"skipped 2 of 12 pictures: \S+cat/008\.png: zero bytes; \S+cat/011\.png: damaged", said)
    refusing = Spec(path=str(tmp_path / "pictures"), image_size=24)
    with pytest.raises(InputError, match=r"cat/008\.png: zero bytes"):
        refusing.images(tmp_path / "cache")
    assert refusing.fingerprint(tmp_path) != spec.fingerprint(tmp_path)


def test_no_picture_that_can_be_used(tmp_path: Path) -> None:
    (folder(tmp_path / "pictures", 1) / "ant" / "000.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"no picture that can be used among 1: .*ant/000\.png: zero bytes"):
        Spec(path=str(tmp_path / "pictures"), faulty="skip").images(tmp_path / "cache")


def rows(file: Path, **columns: list[object]) -> None:
    file.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pa.table(columns), file)


def tar(file: Path, *names: str) -> None:
    file.parent.mkdir(parents=True)
    with tarfile.open(file, "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:4000])


BAD = {
    "nothing there": (lambda at: None, r"images\.path: '.*at' does not exist"),
    "an empty folder": (lambda at: at.mkdir(), "no folder of a class, no .parquet, no .tar"),
    "an empty class": (
        lambda at: (folder(at) / "dog").mkdir(),
        "no picture in the class 'dog'; pictures end with .jpg",
    ),
    "sides": (lambda at: [folder(at / side) for side in ("train", "val")], "holds train, val, .*no classes: give one"),
    "a file": (lambda at: at.write_text("x"), "is no folder of pictures, no .parquet and no .tar"),
    "both": (lambda at: [parquet(at), tars(at)], "holds both .parquet and .tar"),
    "no column": (lambda at: rows(at / "a.parquet", imag=[b""], label=[0]), "no column 'image'; did you mean 'imag'"),
    "no bytes": (lambda at: rows(at / "a.parquet", image=["a"], label=[0]), "a.parquet, row 0: 'image' is str, not"),
    "a word": (
        lambda at: rows(at / "a.parquet", image=[b"a"], label=["cat"]),
        "row 0: 'label' is 'cat', not the number",
    ),
    "negative": (lambda at: rows(at / "a.parquet", image=[b"a"], label=[-1]), "row 0: 'label' is -1, not the number"),
    "no parquet": (lambda at: cut(parquet(at) / "1.parquet"), "1.parquet: cannot be read as parquet"),
    "a cut tar": (lambda at: cut(tars(at) / "00001.tar"), "00001.tar: cannot be read as a tar"),
    "no picture": (lambda at: tar(at / "a.tar", "1.cls", "1.txt"), "a.tar: 1: no picture beside .cls, .txt"),
    "no class": (lambda at: tar(at / "a.tar", "1.png", "1.txt"), "a.tar: 1: no number of a class in .cls"),
}


@pytest.mark.parametrize(("make", "line"), BAD.values(), ids=BAD)
def test_bad_sources_are_one_line(tmp_path: Path, make: Callable[[Path], object], line: str) -> None:
    make(tmp_path / "at")
    with pytest.raises(InputError, match=line):
        Spec(path=str(tmp_path / "at"), faulty="skip", image_size=8).images(tmp_path / "cache")


def test_parquet_of_datasets_names_its_classes(tmp_path: Path) -> None:
    """So that a class without a picture still counts."""
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=[*CLASSES, "dog"])})
    table = datasets.Dataset.from_dict({"image": [{"bytes": picture(0), "path": None}], "label": [2]}, features)
    table.to_parquet(tmp_path / "a.parquet")
    assert Spec(path=str(tmp_path / "*.parquet"), image_size=8).images(tmp_path).num_classes == 4


def test_plain_bytes_in_parquet_are_pictures(tmp_path: Path) -> None:
    images = Spec(path=str(parquet(tmp_path / "plain", nested=False)), image_size=24).images(tmp_path / "cache")
    assert np.array_equal(images.read(np.arange(12)).x, from_uint8(EXPECTED))

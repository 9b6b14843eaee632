"""Pictures of every form, as sources and as pixels in the cache."""

import io
import json
import os
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


def rows(file: Path, **columns: object) -> None:
    file.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pa.table(columns), file)


def tar(file: Path, *names: str) -> None:
    file.parent.mkdir(parents=True)
    with tarfile.open(file, "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))


def labelled(at: Path, suffix: str, content: bytes) -> None:
    """A tar of one picture and this file beside it."""
    at.mkdir()
    with tarfile.open(at / "a.tar", "w") as archive:
        for name, held in (("1.png", picture(0)), (f"1{suffix}", content)):
            member = tarfile.TarInfo(name)
            member.size = len(held)
            archive.addfile(member, io.BytesIO(held))


def no_utf8(file: Path) -> None:
    """The path of its picture is a byte that is no UTF-8."""
    paths = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))
    images = pa.StructArray.from_arrays([pa.array([picture(0)]), paths], ["bytes", "path"])
    file.parent.mkdir()
    pyarrow.parquet.write_table(pa.table({"image": images, "label": [0]}), file)


def twice(file: Path) -> None:
    file.parent.mkdir()
    columns = [pa.array([picture(0)]), pa.array([picture(1)]), pa.array([0])]
    pyarrow.parquet.write_table(pa.Table.from_arrays(columns, ["image", "image", "label"]), file)


def written(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)


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
    "true": (lambda at: rows(at / "a.parquet", image=[b"a"], label=[True]), "row 0: 'label' is True, not the number"),
    "beyond": (
        lambda at: rows(at / "a.parquet", image=[b"a"], label=[10**6]),
        r"row 0: 'label' is 1000000, not the number of a class, 0 to 999,999$",
    ),
    "beyond int64": (
        lambda at: rows(at / "a.parquet", image=[b"a"], label=pa.array([2**64 - 1], pa.uint64())),
        "row 0: 'label' is 18446744073709551615, not the number",
    ),
    "a column twice": (lambda at: twice(at / "a.parquet"), "2 columns are named 'image'; give each its own name"),
    "a path that is no UTF-8": (lambda at: no_utf8(at / "a.parquet"), "a.parquet: cannot be read as parquet: Unicode"),
    "no rows": (lambda at: rows(at / "a.parquet", image=[], label=[]), "at: no picture in it$"),
    "an empty tar": (lambda at: tar(at / "a.tar"), "at: no picture in it$"),
    "a tar of zero bytes": (lambda at: written(at / "a.tar", b""), "a.tar: cannot be read as a tar: ReadError: "),
    "garbage": (lambda at: written(at / "a.tar", b"garbage"), "a.tar: cannot be read as a tar: ReadError: "),
    "a damaged tar.gz": (
        lambda at: written(at / "a.tar.gz", b"\x1f\x8b\x08" + bytes(99)),
        "a.tar.gz: cannot be read as a tar: ",
    ),
    **{
        f"a class of {content[:9]!r} in {suffix}": (
            lambda at, suffix=suffix, content=content: labelled(at, suffix, content),
            "a.tar: 1: no number of a class in .cls, nor as label or cls in .json",
        )
        for suffix, content in (
            (".cls", b"1_0"),
            (".cls", "\u0663".encode()),
            (".cls", b"9" * 20),
            (".cls", b"9" * 5000),
            (".json", b'{"label": true}'),
            (".json", b'{"label": 1000000000000}'),
            (".json", b"[" * 100_000),
        )
    },
    "a broken link": (
        lambda at: (folder(at) / "ant" / "x.png").symlink_to("/nowhere.png"),
        "ant/x.png: cannot be read: No such file",
    ),
    "a link to itself": (
        lambda at: (folder(at) / "ant" / "x.png").symlink_to("x.png"),
        "ant/x.png: cannot be read: Too many levels",
    ),
    "a link to no tar": (
        lambda at: (tars(at) / "b.tar").symlink_to("/nowhere.tar"),
        "b.tar: cannot be read: No such file",
    ),
    "no class": (lambda at: tar(at / "a.tar", "1.png", "1.txt"), "a.tar: 1: no number of a class in .cls"),
}


@pytest.mark.parametrize(("make", "line"), BAD.values(), ids=BAD)
def test_bad_sources_are_one_line(tmp_path: Path, make: Callable[[Path], object], line: str) -> None:
    make(tmp_path / "at")
    with pytest.raises(InputError, match=line) as caught:
        Spec(path=str(tmp_path / "at"), faulty="skip", image_size=8).images(tmp_path / "cache")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["new\nline.png", os.fsdecode(b"\xff.png")], ids=["newline", "no UTF-8"])
def test_names_that_cannot_be_printed_are_escaped(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = folder(tmp_path / "pictures")
    (root / "ant" / name).write_bytes(b"")
    shown = name.encode("unicode_escape").decode()
    with pytest.raises(InputError) as caught:
        Spec(path=str(root), image_size=8).images(tmp_path / "cache")
    assert f"ant/{shown}: zero bytes" in str(caught.value) and str(caught.value).isprintable()
    for _ in range(2):  # it is done the second time
        assert len(Spec(path=str(root), image_size=8, faulty="skip").images(tmp_path / "cache")) == 12
    said = capsys.readouterr().out
    assert f"ant/{shown}: zero bytes" in said and said.count("\n") == 1
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for file, stem in ((root / "ant" / name, name.removesuffix(".png")), (root / "ant" / "000.png", "b")):
            archive.add(file, f"{stem}.png")
            member = tarfile.TarInfo(f"{stem}.cls")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"0"))
    assert len(Spec(path=str(tmp_path / "a.tar"), image_size=8, faulty="skip").images(tmp_path / "cache")) == 1


PROGRESS = {
    '{"x": 1}': "it has no 'records'",
    '{"records": 4, "shard": "x", "skipped": [], "classes": 1}': "its 'shard' is 'x'",
    '{"records": 4, "shard": {"x": 1}, "skipped": [], "classes": 1}': "KeyError: 'arrays_file'",
    '{"settings": 3}\n{"records": 4}': "AttributeError",
}


@pytest.mark.parametrize("line", PROGRESS)
def test_a_hand_in_the_progress_is_refused(line: str, tmp_path: Path) -> None:
    spec = Spec(path=str(folder(tmp_path / "pictures")), image_size=8)
    spec.images(tmp_path / "cache")
    (made,) = (tmp_path / "cache" / "images").iterdir()
    settings = json.loads((made / "manifest.json").read_bytes())["settings"]
    (made / "manifest.json").unlink()
    (made / "progress.jsonl").write_text(f"{json.dumps({'settings': settings})}\n{line}\n{line}\n")
    with pytest.raises(InputError, match=r"progress\.jsonl: changed by hand \(.*; restore it, or delete") as caught:
        spec.images(tmp_path / "cache")
    assert PROGRESS[line] in str(caught.value)


def test_parquet_of_datasets_names_its_classes(tmp_path: Path) -> None:
    """So that a class without a picture still counts."""
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=[*CLASSES, "dog"])})
    table = datasets.Dataset.from_dict({"image": [{"bytes": picture(0), "path": None}], "label": [2]}, features)
    table.to_parquet(tmp_path / "a.parquet")
    assert Spec(path=str(tmp_path / "*.parquet"), image_size=8).images(tmp_path).num_classes == 4


def test_metadata_without_a_list_of_names_says_no_number_of_classes(tmp_path: Path) -> None:
    for names in ('"abcdef"', "[" * 100_000):
        table = pa.table({"image": [picture(0)], "label": [1]}).replace_schema_metadata(
            {"huggingface": f'{{"info": {{"features": {{"label": {{"names": {names}}}}}}}}}'}
        )
        pyarrow.parquet.write_table(table, tmp_path / f"{len(names)}.parquet")
        spec = Spec(path=str(tmp_path / f"{len(names)}.parquet"), image_size=8)
        assert spec.images(tmp_path / "cache").num_classes == 2


def test_plain_bytes_in_parquet_are_pictures(tmp_path: Path) -> None:
    images = Spec(path=str(parquet(tmp_path / "plain", nested=False)), image_size=24).images(tmp_path / "cache")
    assert np.array_equal(images.read(np.arange(12)).x, from_uint8(EXPECTED))

"""Small picture files of known content, in every form that can be read."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

CLASSES = ("ant", "bee", "cat")


def pixels(number: int, height: int = 24, width: int = 32) -> np.ndarray:
    """A picture, (height, width, 3), that no other number has."""
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)


def picture(number: int, form: str = "PNG", **size: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels(number, **size)).save(content, form)
    return content.getvalue()


def folder(root: Path, count: int = 12) -> Path:
    """Pictures 0 .. count - 1, CLASS/NUMBER.png; in the order of their classes."""
    for number in range(count):
        file = root / CLASSES[number * len(CLASSES) // count] / f"{number:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(number))
    return root


def parquet(root: Path, count: int = 12, files: int = 2, nested: bool = True) -> Path:
    """The same in parquet files of row groups of 3."""
    root.mkdir(parents=True, exist_ok=True)
    for part, numbers in enumerate(np.array_split(np.arange(count), files)):
        contents = [picture(number) for number in numbers]
        images = [{"bytes": one, "path": f"{n}.png"} for one, n in zip(contents, numbers, strict=True)]
        labels = [int(number) * len(CLASSES) // count for number in numbers]
        table = pa.table({"image": images if nested else contents, "label": labels})
        pyarrow.parquet.write_table(table, root / f"{part}.parquet", row_group_size=3)
    return root


def tars(root: Path, count: int = 12, files: int = 2) -> Path:
    """The same in tars, the classes in turn in .cls and in .json."""
    root.mkdir(parents=True, exist_ok=True)
    for part, numbers in enumerate(np.array_split(np.arange(count), files)):
        with tarfile.open(root / f"{part:05d}.tar", "w") as tar:
            for number in numbers:
                label = int(number) * len(CLASSES) // count
                named = (".cls", b"%d" % label) if number % 2 else (".json", b'{"label": %d}' % label)
                for suffix, content in ((".png", picture(number)), named):
                    member = tarfile.TarInfo(f"some/{number:06d}{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return root


FORMS = {"folder": folder, "parquet": parquet, "tars": tars}

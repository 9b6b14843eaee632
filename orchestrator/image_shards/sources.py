"""Where pictures come from: a folder of a folder a class, parquet, WebDataset tars, or a dataset on the hub.

Each gives its records in a fixed order, and from any of them on without reading those before.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from orchestrator.data.base import existing, files_fingerprint
from orchestrator.errors import InputError
from orchestrator.image_shards.decode import SUFFIXES

TARS = (".tar", ".tar.gz", ".tgz")
MOST_CLASSES = 10**6


class Record(NamedTuple):
    """A picture as it was found."""

    name: str
    content: bytes  # a picture file
    label: int


def class_number(label: object) -> int:
    """The number of a class. Raises ValueError, which says what it should be."""
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < MOST_CLASSES:
        raise ValueError(f"not the number of a class, 0 to {MOST_CLASSES - 1:,}")
    return label


class Source(Protocol):
    """Pictures in a fixed order."""

    @property
    def where(self) -> str:
        """Where they are, for messages."""

    @property
    def num_classes(self) -> int | None:
        """None: not known before all labels are read."""

    def fingerprint(self) -> str:
        """A hash of what is known without reading: another one means that the pictures changed."""

    def records(self, first: int = 0) -> Iterator[Record]:
        """From number `first` on. Raises InputError where the source, not a picture in it, is at fault."""


class ImageFolder:
    """DIR/CLASS/../PICTURE: the classes are the sorted names of the folders in DIR."""

    def __init__(self, root: Path, where: str) -> None:
        try:
            folders = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
            self.files = [(file, label) for label, folder in enumerate(folders) for file in _pictures(folder)]
        except OSError as error:
            raise InputError(f"{where}: {root}: cannot be read: {error.strerror}") from error
        self.root, self.where, self.num_classes = root, str(root), len(folders)
        names = {folder.name for folder in folders}
        if names and names <= {"train", "val", "validation", "test"}:
            raise InputError(
                f"{where}: {root} holds {', '.join(sorted(names))}, which are no classes: give one of them"
            )
        empty = sorted(names - {file.relative_to(root).parts[0] for file, _ in self.files})
        if not folders or empty:
            what = (
                f"no picture in the class {empty[0]!r}" if empty else "no folder of a class, no .parquet, no .tar in it"
            )
            raise InputError(f"{where}: {root}: {what}; pictures end with {', '.join(SUFFIXES)}")

    def fingerprint(self) -> str:
        return files_fingerprint((file.relative_to(self.root), file) for file, _ in self.files)

    def records(self, first: int = 0) -> Iterator[Record]:
        for file, label in self.files[first:]:
            try:
                yield Record(str(file), file.read_bytes(), label)
            except OSError as error:
                raise InputError(f"{file}: cannot be read: {error.strerror}") from error


def _pictures(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.name.lower().endswith(SUFFIXES))


def source(path: str, where: str, image: str = "image", label: str = "label") -> Source:
    """The pictures of a user's path: a folder, a file, or a quoted pattern of files.

    Args:
        where: the name of the user's choice, for messages.
        image, label: columns of parquet.

    Raises:
        InputError: nothing there, or no pictures.
    """
    from orchestrator.image_shards.parquet import Parquet
    from orchestrator.image_shards.webdataset import WebDataset

    found = existing(path)
    if found and found.is_dir():
        try:
            inside = sorted(file for file in found.iterdir() if not file.is_dir())
        except OSError as error:
            raise InputError(f"{where}: {path}: cannot be read: {error.strerror}") from error
    else:
        # Path.glob takes no absolute pattern.
        inside = [found] if found else [Path(match) for match in sorted(glob.glob(path)) if Path(match).is_file()]  # noqa: PTH207
        if not inside:
            raise InputError(f"{where}: {path!r} does not exist (looked from {Path.cwd()})")
    parquet = [file for file in inside if file.suffix == ".parquet"]
    tars = [file for file in inside if file.name.endswith(TARS)]
    if parquet and tars:
        raise InputError(f"{where}: {path}: holds both .parquet and .tar: give one kind, as a pattern in quotes")
    if parquet:
        return Parquet(parquet, path, image, label)
    if tars:
        return WebDataset(tars, path)
    if found and found.is_dir():
        return ImageFolder(found, where)
    raise InputError(f"{where}: {path}: is no folder of pictures, no .parquet and no {' or '.join(TARS)}")

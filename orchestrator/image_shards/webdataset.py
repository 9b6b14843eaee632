"""Pictures in WebDataset tars: members that share a name up to its first dot are one record, KEY.jpg and KEY.cls."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.image_shards.decode import SUFFIXES
from orchestrator.image_shards.sources import Record, files_fingerprint


class WebDataset:
    """Records of tars, tar by tar. The class is the number in KEY.cls, or `label` or `cls` in KEY.json."""

    num_classes = None

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def fingerprint(self) -> str:
        return files_fingerprint(self.files)

    def records(self, first: int = 0) -> Iterator[Record]:
        number = 0
        for file in self.files:
            try:
                with tarfile.open(file) as tar:
                    files = (member for member in tar if member.isfile() and _parts(member.name)[1])
                    for key, group in groupby(files, lambda member: _parts(member.name)[0]):
                        found = {_parts(member.name)[1]: member for member in group}
                        if number >= first:
                            yield _record(tar, f"{file}: {key}", found)
                        number += 1
            except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
                raise InputError(f"{file}: cannot be read as a tar: {error}") from error


def _parts(name: str) -> tuple[str, str]:
    """Key and suffix: a/b.c.jpg is a/b and .c.jpg."""
    folder, slash, last = name.rpartition("/")
    stem, dot, suffix = last.partition(".")
    return f"{folder}{slash}{stem}", f"{dot}{suffix.lower()}"


def _record(tar: tarfile.TarFile, where: str, members: dict[str, tarfile.TarInfo]) -> Record:
    contents = {suffix: _content(tar, member) for suffix, member in members.items()}
    picture = next((content for suffix, content in contents.items() if suffix in SUFFIXES), None)
    if picture is None:
        raise InputError(f"{where}: no picture beside {', '.join(contents)}; pictures end with {', '.join(SUFFIXES)}")
    try:
        if ".cls" in contents:
            return Record(where, picture, _class(int(contents[".cls"])))
        table = json.loads(contents.get(".json", b"{}"))
        return Record(where, picture, _class(table["label"] if "label" in table else table["cls"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{where}: no number of a class in .cls, nor as label or cls in .json") from error


def _class(label: object) -> int:
    if not isinstance(label, int) or label < 0:
        raise ValueError(label)
    return label


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""

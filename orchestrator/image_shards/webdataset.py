"""Pictures in WebDataset tars: members that share a name up to its first dot are one record, KEY.jpg and KEY.cls."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from orchestrator.data.base import files_fingerprint
from orchestrator.errors import InputError, one_line
from orchestrator.image_shards.decode import SUFFIXES
from orchestrator.image_shards.sources import Record, class_number


class WebDataset:
    """Records of tars, tar by tar. The class is the number in KEY.cls, or `label` or `cls` in KEY.json."""

    num_classes = None

    def __init__(self, files: list[Path], where: str) -> None:
        self.files, self.where = files, where

    def fingerprint(self) -> str:
        return files_fingerprint((file.name, file) for file in self.files)

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
            except InputError:
                raise
            except Exception as error:  # each compression raises its own
                raise InputError(f"{file}: cannot be read as a tar: {one_line(error)}") from error


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
        return Record(where, picture, _class(contents))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f" ({error})" if isinstance(error, ValueError) else ""
        raise InputError(f"{where}: no number of a class in .cls, nor as label or cls in .json{why}") from error


def _class(contents: dict[str, bytes]) -> int:
    if ".cls" in contents:
        digits = contents[".cls"].strip()
        return class_number(int(digits) if digits.isdigit() else None)
    table = json.loads(contents.get(".json", b"{}"))
    return class_number(table["label"] if "label" in table else table["cls"])


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""

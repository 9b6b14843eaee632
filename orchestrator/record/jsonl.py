"""Files of JSON lines that are safe to read while they are written: how a line is written, and which lines count.

A line counts once its newline is there. A process that is killed in the middle of a write leaves a torn last line,
which every reader ignores and the next writer removes. JSON has no NaN: a non-finite number is the string "nan", "inf"
or "-inf".
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError

Fields = Mapping[str, type | tuple[type, ...]]  # what a line must have: name -> type of the value


def dump(value: Mapping[str, Any]) -> bytes:
    """One line. Raises ValueError where a non-finite number was not passed through `plain`."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def plain(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Metrics as strict JSON can hold them."""
    return {name: float(value) if math.isfinite(value) else str(float(value)) for name, value in metrics.items()}


def numbers(metrics: Mapping[str, float | str]) -> dict[str, float]:
    """The inverse of `plain`. Raises ValueError, TypeError or OverflowError where a value is no number."""
    return {name: float(value) for name, value in metrics.items()}


def expect(line: Mapping[str, Any], fields: Fields) -> None:
    """Raise ValueError where a line lacks one of `fields` or has another type of value there."""
    for name, kind in fields.items():
        if name not in line:
            raise ValueError(f"it has no {name!r}")
        if not isinstance(line[name], kind):
            raise ValueError(f"its {name!r} is {str(line[name])[:40]!r}")


class ReplacedError(OSError):
    """Another writer has put a file of its own in the place of this one."""


class Tail:
    """Reads the lines that were added to a file since the last look, and starts anew where the file was replaced.

    `take` is given each line once. What it raises (ValueError, TypeError, OverflowError) says what is wrong with it.
    """

    def __init__(self, path: Path, take: Callable[[dict[str, Any]], object]) -> None:
        self._path, self._take = path, take
        self._inode = -1
        self._offset = 0  # bytes that were read
        self.lines = 0  # that were taken

    def read(self) -> list[dict[str, Any]]:
        """The new whole lines. A missing file has none.

        Raises:
            InputError: a whole line is not what `take` expects, or there is no file to read: another hand was there.
        """
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset, self.lines = inode, 0, 0
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
            fault = f"{self._path}: {error.strerror}; mend that, or move {self._path.parent} away"
            raise InputError(fault) from error
        whole = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        return [self._parse(line) for line in whole]

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise TypeError("it is no JSON object")
            self._take(value)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            what = "not JSON" if isinstance(error, json.JSONDecodeError | UnicodeError | RecursionError) else str(error)
            shown = line[:60].decode(errors="replace").rstrip()
            raise InputError(
                f"{self._path}, line {self.lines + 1}: {what}: {shown!r}; "
                f"delete the line, or move {self._path.parent} away"
            ) from error
        self._offset += len(line)
        self.lines += 1
        return value


class Writer:
    """Appends whole lines to one file, after removing a torn last line. `durable`: each append reaches the disk.

    Another writer that is to take over replaces the file; what this one would still write goes nowhere.
    """

    def __init__(self, path: Path, durable: bool) -> None:
        self._path, self._durable = path, durable
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = _whole_size(path)
        os.ftruncate(self._file, self._size)

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write all of `lines` or, where the disk is full or the file was replaced, none of them (OSError)."""
        data = b"".join(map(dump, lines))
        if os.fstat(self._file).st_nlink == 0:
            raise ReplacedError(f"{self._path} was replaced: another process writes it now")
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            if self._durable:
                os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        os.fsync(self._file)
        os.close(self._file)


def _whole_size(path: Path) -> int:
    """Bytes up to the last newline, found from the end so that a long file costs nothing."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


def replace(path: Path, data: bytes) -> None:
    """Write a whole file so that a reader sees the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise

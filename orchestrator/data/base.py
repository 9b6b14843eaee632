"""What a text source is: documents in a fixed order.

Every file in this folder defines one `Spec`; its name is its kind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from models.spec import Spec
from orchestrator.errors import InputError


def existing(path: str) -> Path | None:
    """The file or folder that a user's path leads to, `~` expanded; None: there is none.

    Raises:
        InputError: it leads to something that would keep whoever reads it waiting.
    """
    try:
        found = Path(path).expanduser()
        if not found.exists():
            return None
    except (OSError, RuntimeError, ValueError):  # too long a name, ~nobody, a zero byte
        return None
    if not (found.is_file() or found.is_dir()):
        raise InputError(f"{path!r} should be a file or a folder; it is a pipe, a socket or a device")
    return found


def files_fingerprint(files: Iterable[tuple[object, Path]]) -> str:
    """A hash of files by name, size and time of change. Raises InputError where one is not there."""
    digest = sha256()
    for name, file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror}") from error
        digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


class DataSpec(Spec):
    """Where documents come from."""

    kind: str

    @abstractmethod
    def documents(self) -> Iterator[str]:
        """The documents, in an order that depends on their content alone.

        Raises:
            InputError: missing, empty or unreadable input, in one line.
        """

    def tokenized(self) -> Path | None:
        """The folder of shards where the documents lie as tokens already; None: they are text.

        Raises:
            InputError: there is no such folder.
        """
        return None

    def fingerprint(self) -> str:
        """A hash of all that decides the documents: what is made from them is cached under it.

        Raises:
            InputError: as `documents`.
        """
        digest = sha256()
        for document in self.documents():
            digest.update(sha256(document.encode()).digest())
        return digest.hexdigest()

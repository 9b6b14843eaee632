"""What Ray's processes know each other by: a token in a file that only its owner may read.

Ray 2.60 makes one for a Ray of this machine by itself, in a file that everybody may read; so ours is there first.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path

OWN = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # where the user set one of these, the token is elsewhere


def write(file: Path) -> None:
    """A new token, never readable by others, not even for a moment.

    Raises:
        FileExistsError: there is such a file.
    """
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(secrets.token_hex(32))


def keep_private() -> None:
    """Before Ray starts on this machine. Whole from the start: another process may read it at any time."""
    if any(name in os.environ for name in OWN):
        return
    file = Path.home() / ".ray" / "auth_token"
    with suppress(OSError):  # a home that cannot be written: Ray says so itself
        file.parent.mkdir(exist_ok=True)
        mine = file.with_name(f".auth_token.{os.getpid()}")
        write(mine)
        with suppress(FileExistsError):
            os.link(mine, file)
        mine.unlink()
        file.chmod(0o600)

"""What the user can mend: one line that says where, which value, and what would be right.

The command line prints an `InputError` without a traceback and exits with code 2. Everything else that escapes is our
bug.
"""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_LINE = 600  # characters


class InputError(Exception):
    """Bad input. `str(error)` is the one line that the user reads: of a longer one, its beginning and its end."""

    def __init__(self, line: str) -> None:
        line = printable(line)
        over = len(line) > LONGEST_LINE
        super().__init__(f"{line[: LONGEST_LINE - 200]} ... {line[-195:]}" if over else line)


class RayLost(Exception):  # noqa: N818 - nothing of ours is at fault
    """The Ray that a sweep ran in is gone. The sweep ends; what is left of it can be resumed."""

    exit_code = 3


def printable(text: str) -> str:
    """With escapes for what cannot be printed: newlines in a file's name, or its bytes that are no UTF-8."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(error: BaseException) -> str:
    """What was raised: its type and message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


class Diverged(Exception):  # noqa: N818 - a verdict on a run, not a fault in it
    """The loss became non-finite: the trial ends, ranks last, and the sweep goes on."""

    def __init__(self, step: int, where: str) -> None:
        super().__init__(f"{where} is not finite at step {step}")
        self.step = step
        self.where = where


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error line: the nearest of `known`, then all of them."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint} (there are: {', '.join(names)})" if names else hint

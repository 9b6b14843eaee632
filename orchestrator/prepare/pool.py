"""Documents to tokens on several processes, in order: what comes out is the same however many there are."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError
from orchestrator.shards.encoder import Encoder, place


@dataclass(frozen=True)
class Batch:
    """Some documents, as they were read: where each lies, and so where to go on after it."""

    documents: list[str]
    positions: list[tuple[int, int]]  # after each: (part, documents of that part so far)


@dataclass(frozen=True)
class Encoded:
    """The same as tokens."""

    positions: list[tuple[int, int]]
    tokens: NDArray[Any]  # documents, end to end, each with the end token
    lengths: NDArray[np.int64]
    held_out: NDArray[np.bool_]  # of each document
    text_bytes: int


class Pool:
    """Processes that tokenize.

    Args:
        tokenizer: the content of a tokenizer.json.
        where: the name of the user's choice, for messages.
    """

    def __init__(self, workers: int, tokenizer: bytes, where: str) -> None:
        self._ahead = 2 * workers + 2  # batches in flight
        # spawn: a fork would copy the threads' locks of the libraries that read.
        self._processes = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (tokenizer, where))

    def encoded(self, batches: Iterable[Batch], held_below: float) -> Iterator[Encoded]:
        """The batches as tokens, in order.

        Args:
            held_below: documents whose place is below it are held out: 0 none, 1 all.

        Raises:
            InputError: a document cannot be encoded, or a process was killed.
        """
        waiting: deque[tuple[Batch, Future[tuple[Any, ...]]]] = deque()
        try:
            for batch in batches:
                waiting.append((batch, self._processes.submit(_encode, batch.documents, held_below)))
                if len(waiting) >= self._ahead:
                    yield self._next(waiting)
            while waiting:
                yield self._next(waiting)
        except BrokenProcessPool as error:
            raise InputError(
                "a tokenizing process was killed (out of memory?); the same command, with fewer --workers, goes on"
            ) from error

    @staticmethod
    def _next(waiting: deque[tuple[Batch, Future[tuple[Any, ...]]]]) -> Encoded:
        batch, future = waiting.popleft()
        return Encoded(batch.positions, *future.result())

    def close(self) -> None:
        self._processes.shutdown(cancel_futures=True)


_encoder: Encoder  # of this process


def _begin(tokenizer: bytes, where: str) -> None:
    global _encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends its processes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core a process
    _encoder = Encoder.load(tokenizer, where)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its processes."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode(documents: list[str], held_below: float) -> tuple[Any, ...]:
    tokens, lengths = _encoder.encode(documents)
    if held_below in (0, 1):
        held_out = np.full(lengths.size, bool(held_below))
    else:
        held_out = np.array([place(document) < held_below for document in documents])
    return tokens, lengths, held_out, sum(len(document.encode()) for document in documents)

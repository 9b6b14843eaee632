"""What takes a while is done in another thread, the less often the longer it takes. Who asks has the last result."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Generic, TypeVar

SHARE = 0.05  # of a core, at most, goes into one such thing

Result = TypeVar("Result")


class Aside(Generic[Result]):
    """The last result of `work`, which runs in `pool` at most once in `every` seconds."""

    def __init__(self, work: Callable[[], Result], pool: Executor, every: float, at_first: Result) -> None:
        self._work, self._pool, self._every = work, pool, every
        self.last = at_first
        self._due = 0.0
        self._job: Future[None] | None = None
        self._one = threading.Lock()  # asker at a time

    def ask(self, wait: float = 0.0) -> Result:
        """The last result; the first one is waited for, `wait` seconds at most."""
        with self._one:
            first = self._job is None
            if self._job is None or (self._job.done() and time.monotonic() >= self._due):
                self._job = self._pool.submit(self._run)
            job = self._job
        if first and wait:
            with suppress(TimeoutError):
                job.result(timeout=wait)
        return self.last

    def _run(self) -> None:
        began = time.thread_time()
        try:
            self.last = self._work()
        except Exception:  # our bug; the page goes on with what it has
            traceback.print_exc(file=sys.stderr)
        took = time.thread_time() - began
        self._due = time.monotonic() + max(self._every, took / SHARE)

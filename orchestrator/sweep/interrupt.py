"""Ctrl-C, SIGTERM and `ancre stop`: the first lets the sweep stop in order, the second ends it at once.

What `ancre stop` asks for on another machine becomes SIGTERM here, so that all of them take one way.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from orchestrator.record import stop_request

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOK_EVERY = 1.0  # seconds between two looks for a request to stop


class Interrupt:
    """Holds both signals while its block runs. In another thread than the main one it cannot, and does nothing.

    The study in `folder` is held meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._pass_on_requests, daemon=True)
        self.signal = 0  # the first one that came
        self.orderly = False  # somebody asks `asked` often enough to stop in order
        self._said = False
        self._before: dict[signal.Signals, Any] = {}

    def asked(self, say: Callable[[str], None]) -> bool:
        """Whether the sweep is to stop; says so when it is asked for the first time after the signal."""
        if self.signal and not self._said:
            self._said = True
            say("stopping once the running trials report; press Ctrl-C again to stop at once")
        return self.signal != 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first = not self.signal
        self.signal = self.signal or number
        if not (first and self.orderly):
            raise KeyboardInterrupt

    def leave(self) -> None:
        """End as the signal asks, once all is in order: KeyboardInterrupt, or SystemExit with 143."""
        if self.signal == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        if self.signal:
            raise KeyboardInterrupt

    def take(self) -> None:
        """Take the signals over; once more after Ray has started, which puts handlers of its own in place."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before.setdefault(number, signal.signal(number, self._handle))

    def _pass_on_requests(self) -> None:
        """Once; a request for "now" counts as two signals."""
        sent = 0
        while sent < 2 and not self._over.wait(LOOK_EVERY):
            request = stop_request.asked(self._folder)
            if sent < (2 if request == stop_request.NOW else bool(request)):
                sent += 1
                os.kill(os.getpid(), signal.SIGTERM)

    def __enter__(self) -> Self:
        stop_request.forget(self._folder)
        self.take()
        if self._before:
            self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._before:
            self._watch.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

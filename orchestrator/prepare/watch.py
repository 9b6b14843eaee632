"""What a person sees while text is prepared: a live line on a terminal, else a plain one every few seconds."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from orchestrator.prepare.pool import Encoded

EVERY = 5.0  # seconds between plain lines


class Watch:
    """Counts of this run, and its speed: megabytes (10^6 bytes) of UTF-8 text a second."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.documents = self.tokens = self.text_bytes = 0
        self.began = self.said = time.monotonic()
        console = Console()
        self.live = Live(console=console) if console.is_terminal else None
        if self.live:
            self.live.start()

    def show(self, source: str, part: int, parts: int, encoded: Encoded) -> None:
        """Count what was tokenized, and say how far the source is."""
        self.documents += encoded.lengths.size
        self.tokens += encoded.tokens.size
        self.text_bytes += encoded.text_bytes
        line = f"{source}: file {part + 1:,} of {parts:,}; {self._counts()}"
        if self.live:
            self.live.update(Text(line))
        elif time.monotonic() - self.said >= EVERY:
            self.said = time.monotonic()
            print(line, flush=True)

    def close(self) -> None:
        if self.live:
            self.live.stop()
        if self.documents:
            print(f"{self._counts()}, in {time.monotonic() - self.began:.1f} s on {self.workers} processes", flush=True)

    def _counts(self) -> str:
        seconds = max(1e-9, time.monotonic() - self.began)
        return (
            f"{self.documents:,} documents, {self.tokens / 1e6:,.1f} M tokens, "
            f"{self.text_bytes / 1e6:,.1f} MB of text; {self.text_bytes / 1e6 / seconds:.2f} MB/s"
        )

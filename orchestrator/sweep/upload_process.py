"""The uploader as the driver sees it: started beside the sweep, told when it is over, waited for within bounds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

LOG_FILE = "uploader.log"
AGAIN = 10.0  # seconds between two starts


class UploadProcess:
    """`python -m orchestrator.record.uploader` for one study. It ends with this process, however that ends."""

    def __init__(self, home: Path, study: str) -> None:
        self._command = [sys.executable, "-m", "orchestrator.record.uploader", str(home.absolute()), study]
        self._path = home / "studies" / study / LOG_FILE
        self._log = self._path.open("wb")
        self._begin()

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the driver
        )

    def keep(self) -> None:
        """Start it again where it was killed; one that ends at once is not started all the time."""
        if self._process.poll() is not None and time.monotonic() > self._began + AGAIN:
            self._process.communicate()
            self._begin()

    def finish(self, seconds: float) -> str:
        """Let it send what is left, for `seconds` at most; why it could not send something, or an empty text."""
        try:
            out, _ = self._process.communicate(b"finish\n", timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"the tracking store took more than {seconds:.0f} s"
        if self._process.returncode:
            return f"the uploader failed, see {self._path}"
        return out.decode().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self._log.close()
        if not self._path.stat().st_size:
            self._path.unlink()

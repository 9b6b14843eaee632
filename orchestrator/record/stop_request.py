"""A request to stop that reaches a driver on any machine: a file in the study's folder.

The driver looks for it once a second. Where it says "now", the driver ends at once; else its trials first report.
"""

from pathlib import Path

from orchestrator.record import jsonl

STOP_FILE = "stop"
NOW = b"now\n"


def ask(folder: Path, now: bool) -> None:
    """Ask whoever runs the study in `folder`."""
    jsonl.replace(folder / STOP_FILE, NOW if now else b"\n")


def asked(folder: Path) -> bytes:
    """What is asked of the driver; empty where nothing is."""
    try:
        return (folder / STOP_FILE).read_bytes()
    except OSError:
        return b""


def forget(folder: Path) -> None:
    """Only whoever holds the study may: what was asked of an earlier driver is no request to this one."""
    (folder / STOP_FILE).unlink(missing_ok=True)

"""What survives a crash: the state of a run after a step, whole or not at all.

    checkpoints/step-00000100/state.pt      tensors and numbers, by torch.save
                              commit.json   its size, its SHA-256, and the trial it belongs to
    checkpoints/best.json                   the step of lowest held-out loss among those saved

A folder is written under another name, flushed to disk and renamed, so a folder of that name without a matching
commit.json is damage, and the one before it counts. Kept are the last two and the best.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any

import torch

from orchestrator.errors import InputError

KEEP = 2

log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one trial.

    Args:
        identity: what a run must share with a checkpoint to go on from it; JSON.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self.identity = identity

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Keep the state after `step`, drop what is no longer needed.

        Raises:
            InputError: the disk does not take it; earlier checkpoints stay.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".saving-", ignore_cleanup_errors=True) as scratch:
                self._write(Path(scratch), step, state)
                target = self._path(step)
                shutil.rmtree(target, ignore_errors=True)  # there only if it was damaged
                Path(scratch).rename(target)
            _flush(self.folder)
        except (OSError, RuntimeError) as error:  # torch.save turns a full disk into a RuntimeError
            raise InputError(f"{self.folder}: the checkpoint of step {step} cannot be written: {error}") from error
        self._prune()

    def newest(self) -> int | None:
        """The step of the newest valid checkpoint.

        Raises:
            InputError: it belongs to another trial.
        """
        for step in reversed(self._steps()):
            commit = self._commit(step)
            if commit is None:
                log.warning("%s is damaged; trying the one before it", self._path(step))
                continue
            difference = _difference(commit["identity"], self.identity)
            if difference:
                raise InputError(f"{self._path(step)} belongs to another trial: {difference}")
            return step
        return None

    def load(self, step: int) -> Any:
        """The state saved after `step`, on the CPU."""
        return load_state(self._path(step) / "state.pt")

    def note(self, step: int, loss: float) -> None:
        """Remember the held-out loss after `step`, so that the best checkpoint is kept."""
        best = self._best()
        if self._path(step).exists() and not (best and best["loss"] <= loss):
            scratch = self.folder / ".best"
            scratch.write_text(json.dumps({"step": step, "loss": loss}))
            scratch.replace(self.folder / "best.json")

    def _write(self, folder: Path, step: int, state: Mapping[str, Any]) -> None:
        file = folder / "state.pt"
        torch.save(dict(state), file)
        _flush(file)
        commit = {"step": step, "bytes": file.stat().st_size, "sha256": _digest(file), "identity": self.identity}
        (folder / "commit.json").write_text(json.dumps(commit))
        _flush(folder / "commit.json")
        _flush(folder)

    def _commit(self, step: int) -> dict[str, Any] | None:
        """The commit record of a checkpoint, nothing where the checkpoint is not what it says."""
        file = self._path(step) / "state.pt"
        commit = _read_json(self._path(step) / "commit.json")
        try:
            if commit and commit["bytes"] == file.stat().st_size and commit["sha256"] == _digest(file):
                return commit if commit["step"] == step and "identity" in commit else None
        except (OSError, KeyError):
            pass
        return None

    def _prune(self) -> None:
        best = self._best()
        valid = [step for step in self._steps() if (self._path(step) / "commit.json").exists()]
        keep = {*valid[-KEEP:], best["step"] if best else None}
        for step in self._steps():
            if step not in keep:
                shutil.rmtree(self._path(step))
        for left in self.folder.glob(".saving-*"):  # by a process that was killed
            shutil.rmtree(left)

    def _best(self) -> dict[str, Any] | None:
        return _read_json(self.folder / "best.json")

    def _steps(self) -> list[int]:
        return sorted(int(path.name[5:]) for path in self.folder.glob("step-*") if path.name[5:].isdecimal())

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"


def load_state(file: Path) -> Any:
    """The tensors and numbers in a file that torch.save wrote. Everything that reads one comes through here.

    Raises:
        InputError: it holds anything else, which is never unpickled, for a pickle can run code; or it is no such file.
    """
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(f"{file}: refused: it holds more than tensors and numbers") from error
    except Exception as error:  # what torch makes of arbitrary bytes: RuntimeError, EOFError, KeyError, ..
        raise InputError(f"{file}: not written by torch.save ({type(error).__name__})") from error


def _difference(theirs: Any, ours: Any, path: str = "") -> str:
    """The first leaf in which two JSON values differ."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return "" if theirs == ours else f"{path} is {json.dumps(theirs)} there, {json.dumps(ours)} here"
    leaves: Iterator[str] = (
        _difference(theirs.get(key), ours.get(key), f"{path}.{key}".lstrip(".")) for key in sorted({*theirs, *ours})
    )
    return next((leaf for leaf in leaves if leaf), "")


def _read_json(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have the disk hold this file, or this folder's list of names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""What survives a crash: the state of a run after a step, whole or not at all.

    checkpoints/step-00000100/state.pt      tensors and numbers, by torch.save; or the files of `sharded.py`
                              commit.json   size and SHA-256 of each file, and the trial they belong to
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
from collections.abc import Callable, Iterator, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any

import torch

from orchestrator.errors import InputError, one_line

KEEP = 2
SCRATCH = ".saving-"
STATE = "state.pt"
COMMIT = "commit.json"

log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one trial.

    Args:
        identity: what a run must share with a checkpoint to go on from it; JSON.
        check: raises where another process writes them now.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], check: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self.identity = identity
        self._check = check

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Keep the state after `step`, drop what is no longer needed.

        Raises:
            InputError: the disk does not take it; earlier checkpoints stay.
        """
        try:
            scratch = self.begin(step)
            torch.save(dict(state), scratch / STATE)
            self.commit(step, scratch)
        except (OSError, RuntimeError) as error:  # torch.save turns a full disk into a RuntimeError
            raise self.refused(step, error) from error

    def begin(self, step: int) -> Path:
        """The empty folder in which the files of this step's checkpoint are to be written."""
        self._check()
        self.clear()
        scratch = self.folder / f"{SCRATCH}{step:08d}"
        scratch.mkdir(parents=True)
        return scratch

    def commit(self, step: int, scratch: Path, about: Mapping[str, Any] | None = None) -> None:
        """Make what is in `scratch` the checkpoint of this step; `about`, JSON, is kept beside it."""
        files = {}
        for file in sorted(scratch.iterdir()):
            _flush(file)
            files[file.name] = {"bytes": file.stat().st_size, "sha256": _digest(file)}
        record = {"step": step, "files": files, "identity": self.identity, "about": about}
        self._check()
        (scratch / COMMIT).write_text(json.dumps(record))
        _flush(scratch / COMMIT)
        _flush(scratch)
        target = self.path(step)
        shutil.rmtree(target, ignore_errors=True)  # there only if it was damaged
        scratch.rename(target)
        _flush(self.folder)
        self._prune()

    def take_over(self, donor: Checkpoints, step: int) -> bool:
        """Have the donor's checkpoint of `step` as the only one here; False where it has none that is whole.

        `identity` is in both the trial as JSON. Whatever else the donor's checkpoint must share with a run stays as it
        is. Where it was done before, also long ago, nothing is done.
        """
        name = donor.folder.parent.name
        if max(self._steps(), default=-1) > step or (self._valid(step) or {}).get("donor") == name:
            return True
        theirs = donor._valid(step)
        if theirs is None:
            return False
        scratch = self.begin(step)
        for file in theirs["files"]:
            shutil.copyfile(donor.path(step) / file, scratch / file)
            _flush(scratch / file)
        identity = _replaced(theirs["identity"], donor.identity, self.identity)
        record = theirs | {"identity": identity, "donor": name}
        (scratch / COMMIT).write_text(json.dumps(record))
        _flush(scratch / COMMIT)
        for old in self._steps():
            shutil.rmtree(self.path(old))
        (self.folder / "best.json").unlink(missing_ok=True)
        scratch.rename(self.path(step))
        _flush(self.folder)
        return True

    def whole(self, step: int) -> bool:
        """Whether there is a valid checkpoint of this step."""
        return self._valid(step) is not None

    def refused(self, step: int, error: BaseException) -> InputError:
        """What to raise where the disk did not take a checkpoint; frees what was written of it."""
        self.clear()
        return InputError(f"{self.folder}: the checkpoint of step {step} cannot be written: {one_line(error)}")

    def clear(self) -> None:
        """Remove what was being written when its process died."""
        for left in self.folder.glob(f"{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)

    def newest(self) -> int | None:
        """The step of the newest valid checkpoint.

        Raises:
            InputError: it belongs to another trial.
        """
        for step in reversed(self._steps()):
            commit = self._valid(step)
            if commit is None:
                log.warning("%s is damaged; trying the one before it", self.path(step))
                continue
            difference = _difference(commit["identity"], self.identity)
            if difference:
                raise InputError(f"{self.path(step)} belongs to another trial: {difference}")
            return step
        return None

    def load(self, step: int) -> Any:
        """The state saved after `step`, on the CPU."""
        return load_state(self.path(step) / STATE)

    def about(self, step: int) -> Any:
        """What was kept beside the files of `step`."""
        return (_read_json(self.path(step) / COMMIT) or {}).get("about")

    def note(self, step: int, loss: float) -> None:
        """Remember the held-out loss after `step`, so that the best checkpoint is kept."""
        best = self._best()
        if self.path(step).exists() and not (best and best["loss"] <= loss):
            scratch = self.folder / ".best"
            scratch.write_text(json.dumps({"step": step, "loss": loss}))
            scratch.replace(self.folder / "best.json")

    def _valid(self, step: int) -> dict[str, Any] | None:
        """The commit record of a checkpoint, nothing where the checkpoint is not what it says."""
        folder = self.path(step)
        commit = _read_json(folder / COMMIT)
        try:
            if commit and commit["step"] == step and "identity" in commit and commit["files"]:
                # Sizes first: a checkpoint cut short is known without reading it.
                sizes = all((folder / name).stat().st_size == file["bytes"] for name, file in commit["files"].items())
                if sizes and all(_digest(folder / name) == file["sha256"] for name, file in commit["files"].items()):
                    return commit
        except (OSError, KeyError, TypeError, AttributeError):
            pass
        return None

    def _prune(self) -> None:
        best = self._best()
        valid = [step for step in self._steps() if (self.path(step) / COMMIT).exists()]
        keep = {*valid[-KEEP:], best["step"] if best else None}
        for step in self._steps():
            if step not in keep:
                shutil.rmtree(self.path(step))

    def _best(self) -> dict[str, Any] | None:
        return _read_json(self.folder / "best.json")

    def _steps(self) -> list[int]:
        return sorted(int(path.name[5:]) for path in self.folder.glob("step-*") if path.name[5:].isdecimal())

    def path(self, step: int) -> Path:
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


def _replaced(value: Any, old: Any, new: Any) -> Any:
    if value == old:
        return new
    return {key: _replaced(below, old, new) for key, below in value.items()} if isinstance(value, dict) else value


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

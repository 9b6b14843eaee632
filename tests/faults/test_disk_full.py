"""A full disk under a trial's rows: the trial fails, keeps what it wrote, and goes on once there is room."""

import errno
import os

import pytest

from orchestrator.record import jsonl, spool
from orchestrator.record.turn import Turn
from orchestrator.sweep.trainable import Job, Run
from tests.orchestrator.sweep_workload import Spec


def job(folder):
    return Job(
        spec=Spec.model_validate({"train": {"steps": 8}}).model_dump(mode="json"),
        folder=str(folder),
        cache=str(folder),
        metric="train/loss",
        rungs=[],
        cpus=1,
        gpus=0.0,
        workers=1,
        min_workers=0,
        commit="abc",
        attempt=1,
        silence=60.0,
        turn=Turn.take(folder, 1),
    )


@pytest.mark.parametrize("room", [300, 301, 333, 350])
def test_rows_are_whole_or_not_there(tmp_path, monkeypatch, room):
    left = [room]  # bytes

    def write(file, data):
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = data[: left[0]]
        left[0] -= len(part)
        return real(file, part)

    real = os.write
    with monkeypatch.context() as full:
        full.setattr(jsonl.os, "write", write)
        with pytest.raises(OSError, match="No space left"):
            list(Run(job(tmp_path)).rows())
    kept = [row["step"] for row in spool.rows(tmp_path)]
    assert kept == list(range(1, len(kept) + 1)) and 0 < len(kept) < 8
    assert len(list(Run(job(tmp_path)).rows())) <= 8
    assert [row["step"] for row in spool.rows(tmp_path)] == list(range(1, 9))

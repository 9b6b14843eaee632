"""Two workers against one: the same losses, the same held-out perplexity, each other's checkpoints."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from orchestrator.errors import InputError
from orchestrator.pretrain.parallel import Workers

WORKER = Path(__file__).with_name("two_workers.py")


@pytest.fixture
def two_workers(tmp_path, cache):
    """The rows that each of two processes gets; `rows` stops them early."""

    def start(trial, folder: str, rows: int | None = None) -> list[list]:
        arguments = {
            "count": 2,
            "meeting": str(tmp_path / f"meeting-{folder}-{rows}"),
            "trial": trial.model_dump_json(),
            "folder": str(tmp_path / folder),
            "cache": str(cache),
            "rows": rows,
        }
        processes = [
            subprocess.Popen(
                [sys.executable, WORKER, json.dumps(arguments | {"rank": rank})],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in (0, 1)
        ]
        answers = [process.communicate(timeout=120) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], answers
        return [[json.loads(line) for line in out.splitlines()] for out, _ in answers]

    return start


def equal(ours: list, theirs: list) -> None:
    """Rows of one worker and of two: all numbers but the speed, to 1e-5."""
    assert [row[0] for row in ours] == [row[0] for row in theirs]
    for (_, metrics, topology), (_, other, other_topology) in zip(ours, theirs, strict=True):
        speed = {"train/tokens_per_second"}
        assert {k: v for k, v in metrics.items() if k not in speed} == pytest.approx(
            {k: v for k, v in other.items() if k not in speed}, rel=1e-5
        )
        assert (topology is None) == (other_topology is None)
        if topology:
            np.testing.assert_allclose(topology["decoder"]["p"], other_topology["decoder"]["p"], rtol=1e-4)


@pytest.mark.parametrize("packing", ["concat", "none"])
def test_two_workers_follow_one(packing, trial, run, two_workers):
    """A batch of 7 is 3 and 4 sequences, in micro-batches that differ in number; unpacked, also in tokens."""
    settings = {"steps": 8, "batch": 7, "log_every": 2, "checkpoint_every": 4}
    spec = trial(text={"packing": packing}, train=settings)
    alone = [[row.step, dict(row.metrics), row.topology] for row in run(spec, "alone")]
    first, second = two_workers(spec, "pair")
    equal(first, alone)
    assert first == second
    if packing == "none":
        stopped, _ = two_workers(spec, "stopped", rows=3)
        resumed, _ = two_workers(spec, "stopped")
        assert [row[0] for row in stopped] == [2, 4, 6]
        assert [row[0] for row in resumed] == [4, 6, 8]
        equal(resumed, alone[1:])
        went_on = [[row.step, dict(row.metrics), row.topology] for row in run(spec, "stopped")]
        equal(went_on, alone[-1:])  # one worker goes on from what two have saved


def test_every_sequence_has_one_worker():
    batch = np.arange(22).reshape(11, 2)
    shares = [Workers(rank, 4, torch.device("cpu")).share(batch) for rank in range(4)]
    assert np.array_equal(np.concatenate(shares), batch)
    assert {len(share) for share in shares} == {2, 3}
    with pytest.raises(InputError, match=r"train\.batch 11 is smaller than the number of workers 12"):
        Workers(0, 12, torch.device("cpu")).share(batch)

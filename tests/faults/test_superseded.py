"""A trial that was started again while its first process still runs: that one writes neither rows nor checkpoints."""

import pytest

from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.record import spool
from orchestrator.record.turn import Superseded, Turn
from orchestrator.sweep.trainable import Run
from tests.faults.test_disk_full import job


def test_the_first_process_stops_at_its_next_row(tmp_path):
    old = Run(job(tmp_path)).rows()
    assert [next(old).step for _ in range(3)] == [1, 2, 3]
    new = Run(job(tmp_path)).rows()
    assert next(new).step == 3  # from the checkpoint; the row of that step may not have been written
    with pytest.raises(Superseded):
        next(old)
    assert [row.step for row in new] == [4, 5, 6, 7, 8]
    assert [row["step"] for row in spool.rows(tmp_path)] == list(range(1, 9))


def test_a_checkpoint_of_an_earlier_start_is_neither_begun_nor_finished(tmp_path):
    old = Checkpoints(tmp_path / "checkpoints", {}, Turn(tmp_path, Turn.take(tmp_path, 1)).check)
    begun = old.begin(1)
    new = Checkpoints(tmp_path / "checkpoints", {}, Turn(tmp_path, Turn.take(tmp_path, 2)).check)
    new.save(1, {"from": 2})
    with pytest.raises(Superseded):
        old.save(2, {"from": 1})
    begun.mkdir(exist_ok=True)
    with pytest.raises(Superseded):
        old.commit(2, begun)
    assert new.newest() == 1 and new.load(1) == {"from": 2}

import math

from orchestrator.record import spool
from orchestrator.record.jsonl import Tail


def write(folder, *steps, loss=1.0):
    written = spool.Spool(folder)
    for step in steps:
        written.append(step, 1000.0 + step, {"train/loss": loss})
    written.close()


def steps(folder):
    return [row["step"] for row in spool.rows(folder)]


def test_a_resumed_trial_repeats_no_step(tmp_path):
    write(tmp_path, 0, 10, 20, 30)
    write(tmp_path, 20, 30, 40, loss=2.0)
    assert steps(tmp_path) == [0, 10, 20, 30, 40]
    assert [row["metrics"]["train/loss"] for row in spool.rows(tmp_path)] == [1.0, 1.0, 2.0, 2.0, 2.0]


def test_a_trial_that_starts_over_keeps_no_old_row(tmp_path):
    write(tmp_path, 0, 10, 20)
    write(tmp_path, 0)
    assert steps(tmp_path) == [0]


def test_a_trial_that_goes_on_keeps_every_row(tmp_path):
    write(tmp_path, 0, 10)
    tail = Tail(tmp_path / spool.ROWS_FILE)
    tail.read()
    write(tmp_path, 20)
    assert steps(tmp_path) == [0, 10, 20]
    assert [row["step"] for row in tail.read()] == [20]


def test_a_torn_last_row_is_dropped(tmp_path):
    write(tmp_path, 0, 10)
    with (tmp_path / spool.ROWS_FILE).open("ab") as file:
        file.write(b'{"step":20,"ti')
    assert steps(tmp_path) == [0, 10]
    write(tmp_path, 20)
    assert steps(tmp_path) == [0, 10, 20]


def test_rows_are_strict_json(tmp_path):
    write(tmp_path, 0, loss=math.nan)
    assert b'"train/loss":"nan"' in (tmp_path / spool.ROWS_FILE).read_bytes()

import json
import math

import pytest

from orchestrator.errors import InputError
from orchestrator.record import jsonl, spool


def write(folder, *steps, loss=1.0):
    written = spool.Spool(folder / spool.ROWS_FILE)
    for step in steps:
        written.append(step, spool.row(1000.0 + step, {"train/loss": loss}))
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
    tail = spool.tail(tmp_path)
    tail.read()
    write(tmp_path, 20)
    assert steps(tmp_path) == [0, 10, 20]
    assert [row["step"] for row in tail.read()] == [0, 10, 20]


def test_a_process_that_was_given_up_writes_nothing_more(tmp_path):
    old = spool.Spool(tmp_path / spool.ROWS_FILE)
    old.append(1, spool.row(0.0, {"train/loss": 1.0}))
    old.append(2, spool.row(0.0, {"train/loss": 1.0}))
    write(tmp_path, 2, 3)
    with pytest.raises(jsonl.ReplacedError):
        old.append(3, spool.row(0.0, {"train/loss": 1.0}))
    old.close()
    assert steps(tmp_path) == [1, 2, 3]


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


@pytest.mark.parametrize(
    "row",
    [
        {"x": 1},
        {"step": "0", "time": 1, "metrics": {}},
        {"step": 0, "time": 1, "metrics": {"a": "b"}},
        {"step": 0, "time": 1, "metrics": {"a": None}},
        {"step": 0, "time": 1, "metrics": [1]},
    ],
)
def test_what_is_no_row_is_named(tmp_path, row):
    write(tmp_path, 0)
    with (tmp_path / spool.ROWS_FILE).open("ab") as file:
        file.write(json.dumps(row).encode() + b"\n")
    with pytest.raises(InputError, match=r"rows\.jsonl, line 2: "):
        spool.rows(tmp_path)

import os
import time
from contextlib import ExitStack

import pytest

from orchestrator.cli import main
from orchestrator.errors import InputError
from orchestrator.record import lock
from orchestrator.record.ledger import ATTEMPT, LEDGER_FILE, PLANNED, RUNNING, Ledger
from orchestrator.record.status import status


@pytest.mark.parametrize("damage", ["line", "folder"])
def test_a_broken_ledger_hides_no_other_study(tmp_path, damage, capsys):
    for name in ("broken", "whole"):
        (tmp_path / "studies" / name).mkdir(parents=True)
    Ledger(tmp_path / "studies" / "whole").close()
    broken = tmp_path / "studies" / "broken" / LEDGER_FILE
    if damage == "folder":
        broken.mkdir()
    else:
        broken.write_text("null\n")
    first, second = status(tmp_path, None)
    assert first.keys() == {"study", "fault"} and str(broken) in first["fault"]
    assert (second["study"], second["left"]) == ("whole", 0) and "fault" not in second
    with pytest.raises(InputError) as caught:
        status(tmp_path, "broken")
    assert str(caught.value) == first["fault"]
    assert main(["status", "--home", str(tmp_path)]) == 0
    assert main(["status", "broken", "--home", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"ancre: {first['fault']}\n"


@pytest.mark.parametrize("alive", [True, False])
def test_a_trial_whose_driver_was_killed_does_not_run(tmp_path, alive):
    folder = tmp_path / "studies" / "s"
    (folder / "trials" / "c-s0").mkdir(parents=True)
    with ExitStack() as stack:
        lease = stack.enter_context(lock.hold(folder)) if alive else None
        ledger = Ledger(folder, lease)
        about = {"cell": "c", "arm": "a", "axes": {}, "seed": 0, "steps": 9, "spec": {"workload": "lnn"}}
        now = time.time()
        ledger.write_all(
            [
                {"event": ATTEMPT, "attempt": 1, "study": {}},
                {"event": PLANNED, "trial": "c-s0", **about},
                {"event": RUNNING, "trial": "c-s0", "attempt": 1, "time": now - 1000},
            ]
        )
        rows = folder / "trials" / "c-s0" / "rows.jsonl"
        rows.write_text('{"step":7,"time":1.0,"metrics":{}}\n')
        os.utime(rows, (now - 900, now - 900))
        (row,) = status(tmp_path, "s")
        ledger.close()
    assert row["state"] == ("running" if alive else "paused")
    assert row["step"] == "7/9"  # which the ledger hears of at the trial's end
    assert row["seconds"] == pytest.approx(1000 if alive else 100, abs=5)

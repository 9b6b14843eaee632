import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from orchestrator.errors import InputError
from orchestrator.record import lock

HOLD = """
import sys, time
from pathlib import Path
from orchestrator.record import lock
with lock.hold(Path(sys.argv[1])) as sign:
    sign(7)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_live_lock_is_refused_with_its_owners_name(tmp_path, holder):
    with pytest.raises(InputError, match=rf"is run by {holder.pid}@{platform.node()}"), lock.hold(tmp_path):
        pass
    assert lock.owner(tmp_path).attempt == 7


def test_the_lock_of_a_killed_driver_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert lock.owner(tmp_path) is None
    with lock.hold(tmp_path) as sign:
        sign(8)
        assert lock.owner(tmp_path) == lock.Owner.me(8)
    assert lock.owner(tmp_path) is None


def test_two_holders_in_one_process(tmp_path):
    with lock.hold(tmp_path), pytest.raises(InputError, match=f"is run by {os.getpid()}@"), lock.hold(tmp_path):
        pass


def test_a_process_id_that_is_used_again_is_no_owner():
    assert lock.Owner.me(1).alive()
    assert not replace(lock.Owner.me(1), started="1").alive()
    assert not replace(lock.Owner.me(1), boot="another").alive()


def test_an_owner_on_another_machine_counts_as_alive(tmp_path):
    elsewhere = replace(lock.Owner.me(3), host="elsewhere", pid=1)
    (tmp_path / lock.LOCK_FILE).write_text(json.dumps(asdict(elsewhere)))
    with pytest.raises(InputError, match="is run by 1@elsewhere; if that machine is gone, delete"), lock.hold(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "5", "[" * 100_000, "\0"], ids=range(7))
def test_a_torn_lock_is_no_lock(tmp_path, content):
    (tmp_path / lock.LOCK_FILE).write_text(content)
    assert lock.owner(tmp_path) is None
    with lock.hold(tmp_path):
        pass

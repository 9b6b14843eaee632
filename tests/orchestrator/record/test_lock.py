"""Who runs a study: processes of this machine, of another one (by name), and many at once."""

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from orchestrator.errors import InputError
from orchestrator.record import lock
from orchestrator.record.ledger import ATTEMPT, LEDGER_FILE, PLANNED, RUNNING, History, Ledger

HERE = platform.node()
# Holds the study in argv[1] as a process of the machine argv[2], until it is told to end.
HOLD = """
import platform, sys
from pathlib import Path
platform.node = lambda: sys.argv[2]
from orchestrator.errors import InputError
from orchestrator.record import lock
lock.RENEW, lock.EXPIRES = 0.1, 2.0
folder = Path(sys.argv[1])
try:
    with lock.hold(folder) as lease:
        print(lease.number, flush=True)
        with (folder / "held").open("a") as file:
            file.write("+")
            file.flush()
            sys.stdin.readline()
            file.write("-")
except InputError as error:
    print(error)
"""
PLAN = {"trial": "c-s0", "cell": "c", "arm": "a", "axes": {}, "seed": 0, "steps": 1, "spec": {"workload": "lnn"}}


@pytest.fixture
def start(tmp_path):
    """Starts processes that try to hold the study."""
    processes = []

    def begin(host=HERE):
        command = [sys.executable, "-c", HOLD, str(tmp_path), host]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(lock, "EXPIRES", 2.0)
    monkeypatch.setattr(lock, "RENEW", 0.1)


def held(process):
    """The attempt that it holds."""
    return int(process.stdout.readline())


def test_a_live_owner_is_named(tmp_path, start):
    process = start()
    assert held(process) == 1
    with pytest.raises(InputError, match=rf"is run by {process.pid}@{platform.node()}"), lock.hold(tmp_path):
        pass
    assert lock.owner(tmp_path).attempt == 1


def test_a_killed_driver_is_followed_at_once(tmp_path, start):
    process = start()
    held(process)
    process.kill()
    process.wait()
    assert lock.owner(tmp_path) is None
    (tmp_path / LEDGER_FILE).touch()
    with lock.hold(tmp_path) as lease:
        assert lease.number == 2 and lock.owner(tmp_path) == lease.owner
    assert lock.owner(tmp_path) is None
    with lock.hold(tmp_path) as lease:
        assert lease.number == 3


def test_a_driver_of_another_machine_is_watched(tmp_path, start, impatient):
    process = start("elsewhere")
    held(process)
    assert lock.owner(tmp_path).host == "elsewhere"
    with pytest.raises(InputError, match=rf"is run by {process.pid}@elsewhere"), lock.hold(tmp_path):
        pass
    process.kill()
    process.wait()
    with lock.hold(tmp_path) as lease:  # nothing was renewed for `EXPIRES`
        assert lease.number == 2


def test_who_was_suspended_and_followed_writes_no_more(tmp_path, start, impatient, monkeypatch):
    """It runs in this process; while its renewals stand still, a driver of another machine takes over."""
    monkeypatch.setattr(platform, "node", lambda: "cut-off")
    with lock.hold(tmp_path) as lease:
        ledger = Ledger(tmp_path, lease)
        ledger.write(ATTEMPT, study={})
        ledger.write(PLANNED, **PLAN)
        monkeypatch.setattr(lock.Lease, "_renew", lambda _: None)
        other = start("elsewhere")
        assert held(other) == 2
        monkeypatch.undo()
        with pytest.raises(lock.LeaseError, match=rf"taken over by {other.pid}@elsewhere"):
            ledger.write(RUNNING, trial="c-s0")
    assert lock.owner(tmp_path).attempt == 2  # what lost the study does not release it
    ledger.close()
    assert History(tmp_path).trials["c-s0"].state == PLANNED


def test_what_an_earlier_attempt_still_writes_is_not_read(tmp_path):
    class Attempt:
        def __init__(self, number):
            self.number = number

        def check(self):
            """As if it had looked just before the other one took over."""

    def event(ledger, name, **fields):
        ledger.write(name, **fields)

    first = Ledger(tmp_path, Attempt(1))
    event(first, ATTEMPT, study={})
    event(first, PLANNED, **PLAN)
    second = Ledger(tmp_path, Attempt(2))
    with pytest.raises(OSError, match="was replaced"):
        event(first, RUNNING, trial="c-s0")
    late = Ledger(tmp_path)  # on storage where the file is the same all along
    late.write_all([{"event": ATTEMPT, "attempt": 2, "study": {}}, {"event": RUNNING, "trial": "c-s0", "attempt": 1}])
    history = History(tmp_path)
    assert (history.attempts, history.trials["c-s0"].state) == (2, PLANNED)
    for ledger in (first, second, late):
        ledger.close()


@pytest.mark.parametrize("hosts", [["here"], ["here", "there", "elsewhere"]], ids=["one-machine", "three-machines"])
def test_of_many_at_once_one_wins(tmp_path, start, hosts):
    """Six processes race for the study, three times over; each time its last holder was killed."""
    for _ in range(3):
        racing = [start(hosts[number % len(hosts)]) for number in range(6)]
        said = [process.stdout.readline() for process in racing]
        assert Counter(line.strip().isdecimal() for line in said) == {True: 1, False: 5}, said
        winner = next(process for process, line in zip(racing, said, strict=True) if line.strip().isdecimal())
        winner.kill()
        winner.wait()
    assert (tmp_path / "held").read_text() == "+" * 3


def test_threads_that_race_and_give_up_never_hold_it_together(tmp_path):
    inside, wins = [], []

    def race():
        for _ in range(20):
            try:
                with lock.hold(tmp_path / "s") as lease:
                    inside.append(lease.number)
                    assert len(inside) == 1
                    time.sleep(0.001)
                    wins.append(inside.pop())
            except InputError:
                pass

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins and not inside
    assert not (tmp_path / "s").exists()  # a study that never began leaves nothing


def test_two_holders_in_one_process(tmp_path):
    with lock.hold(tmp_path), pytest.raises(InputError, match=f"is run by {os.getpid()}@"), lock.hold(tmp_path):
        pass


def test_a_stopped_driver_of_this_machine_still_holds_it(tmp_path, start):
    process = start()
    held(process)
    process.send_signal(signal.SIGSTOP)
    assert lock.owner(tmp_path).pid == process.pid


def test_a_process_id_that_is_used_again_is_no_owner(tmp_path):
    me = lock.Owner.me(tmp_path / "1.json")
    assert me.alive()
    assert not replace(me, started="1").alive()
    assert not replace(me, boot="another").alive()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "5", "[" * 100_000, "\0"], ids=range(7))
def test_a_torn_lease_is_no_lease(tmp_path, content):
    (tmp_path / lock.LEASES).mkdir()
    (tmp_path / lock.LEASES / "4.json").write_text(content)
    assert lock.owner(tmp_path) is None
    with lock.hold(tmp_path) as lease:
        assert lease.number == 5


def test_a_number_is_never_given_twice_though_the_leases_are_gone(tmp_path):
    (tmp_path / LEDGER_FILE).write_text(json.dumps({"event": ATTEMPT, "attempt": 6, "study": {}, "time": 0}) + "\n")
    with lock.hold(tmp_path) as lease:
        assert lease.number == 7

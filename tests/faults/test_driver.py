"""The driver dies or is told to stop, at any point; what is left then runs, once each, from its newest checkpoint."""

import signal
import time

import pytest

from analysis import names
from analysis.store import open_store
from orchestrator.record import lock
from orchestrator.record.tracking import uri_of
from tests.faults.driver import TRIALS, Driver, check_whole, left_behind, starts, states, wait_for, write_study

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def stop_in_the_middle(home, words, number, running, doing=None):
    """Start a driver and send it a signal once so many trials have been started in all; its exit code and words.

    Where it says what one should be `doing`, that is waited for.
    """
    trials = home / "studies" / "stopped" / "trials"
    before = set(trials.glob(f"*/{doing}"))
    driver = Driver(*words, "--home", home)
    wait_for(driver, home, "stopped", names.RUNNING, running)
    while doing and not set(trials.glob(f"*/{doing}")) - before:
        time.sleep(0.02)
    driver.process.send_signal(number)
    code, said = driver.end()
    assert lock.owner(home / "studies" / "stopped") is None
    assert not left_behind(driver, home)
    return code, said


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_a_driver_that_is_killed_interrupted_and_terminated_in_turn(home):
    path = write_study(home, "stopped", seeds=[0, 1, 2], linger_at=6)
    code, _ = stop_in_the_middle(home, ("start", path), signal.SIGKILL, running=3)
    assert code == -signal.SIGKILL
    before = states(home, "stopped")
    assert before[names.FINISHED] >= 1 and before[names.RUNNING] >= 1

    code, said = stop_in_the_middle(home, ("resume", "stopped"), signal.SIGINT, running=6, doing="evaluates")
    assert code == 130 and "resume with: ancre resume stopped" in said
    after = states(home, "stopped")
    assert after[names.PAUSED] >= 1 and not after[names.RUNNING] and after[names.FINISHED] < TRIALS
    runs = open_store(uri_of(home)).study("stopped").runs
    assert {run.state for run in runs} == {names.PAUSED, names.FINISHED}

    code, said = stop_in_the_middle(home, ("resume", "stopped"), signal.SIGTERM, running=9, doing="saves")
    assert code == 143, said

    code, said = Driver("resume", "stopped", "--home", home).end()
    assert code == 0, said
    check_whole(home, "stopped")
    again = [first for first in starts(home, "stopped").values() if len(first) > 1]
    assert any(int(step) > 1 for first in again for step in first[1:])  # from a checkpoint, not from the start


def test_a_second_interrupt_does_not_wait(home):
    path = write_study(home, "twice", sleep=60)  # no trial ever gets to a report
    first = Driver("start", path, "--home", home)
    wait_for(first, home, "twice", names.RUNNING, 1)
    first.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert first.process.poll() is None  # in order, it would wait for the trial
    first.process.send_signal(signal.SIGINT)
    code, said = first.end()
    assert code == 130, said
    assert states(home, "twice").keys() == {names.PAUSED, "planned"}
    assert not left_behind(first, home)


@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_a_driver_that_is_terminated_while_it_starts(home, seconds):
    """While Python imports, and while Ray comes up: a signal finds our handler, none yet, or Ray's."""
    path = write_study(home, "early")
    driver = Driver("start", path, "--home", home)
    time.sleep(seconds)
    driver.process.terminate()
    code, said = driver.end()
    assert code in (143, -signal.SIGTERM), said
    assert "Traceback" not in said
    assert lock.owner(home / "studies" / "early") is None
    assert not left_behind(driver, home)

"""Ray itself is lost: the driver ends within seconds, says so in one line, and what is left can be resumed."""

import os
import signal
import socket
import threading
import time

import pytest

from analysis import names
from orchestrator.sweep import pulse
from tests.faults.driver import Driver, check_whole, left_behind, processes, states, wait_for, write_study

pytestmark = pytest.mark.timeout(900)


def of_driver(driver, name):
    """The process of that name which a driver's Ray started."""
    return next(pid for pid, sid, args in processes() if sid == driver.process.pid and f"/{name} " in args)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_a_raylet_that_is_killed_and_a_signal_to_every_process(tmp_path):
    path = write_study(tmp_path, "gone", seeds=[0, 1], sleep=0.5)
    driver = Driver("start", path, "--home", tmp_path)
    wait_for(driver, tmp_path, "gone", names.RUNNING, 1)
    began = time.monotonic()
    os.kill(of_driver(driver, "raylet"), signal.SIGKILL)  # its workers finish what they do, and no more
    code, said = driver.end()
    assert code == 3 and time.monotonic() - began < 40, said
    line = said.splitlines()[-1]
    assert line.startswith("ancre: gone: Ray's raylet at ") and "is gone; go on with: ancre resume gone" in line
    assert states(tmp_path, "gone")[names.RUNNING] == 0
    assert not left_behind(driver, tmp_path)

    driver = Driver("resume", "gone", "--home", tmp_path)
    wait_for(driver, tmp_path, "gone", names.RUNNING, 4)
    began = time.monotonic()
    os.killpg(driver.process.pid, signal.SIGTERM)  # as a job's supervisor does: Ray's own processes get it, too
    code, said = driver.end()
    assert code == 143 and time.monotonic() - began < 40, said
    assert "ancre resume gone" in said.splitlines()[-1]
    assert not left_behind(driver, tmp_path)

    code, said = Driver("resume", "gone", "--home", tmp_path).end()
    assert code == 0, said
    check_whole(tmp_path, "gone", trials=6)


@pytest.mark.parametrize("which", ["control service", "raylet"])
def test_what_no_longer_answers_is_named_once(monkeypatch, which):
    monkeypatch.setattr(pulse, "KNOCK_EVERY", 0.02)
    servers = {name: socket.create_server(("127.0.0.1", 0)) for name in ("control service", "raylet")}
    monkeypatch.setattr(pulse, "_places", lambda: {name: server.getsockname() for name, server in servers.items()})
    told, gone = [], threading.Event()

    def tell(what):
        told.append(what)
        gone.set()

    with pulse.watched(0.3, tell):
        assert not gone.wait(0.6)
        port = servers[which].getsockname()[1]
        servers[which].close()
        assert gone.wait(10)
        time.sleep(0.5)
    assert told == [f"Ray's {which} at 127.0.0.1:{port} is gone"]
    for server in servers.values():
        server.close()

"""`ancre serve` and `ancre ui` as processes: what they say, and that nothing is left of them."""

import os
import signal
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection

import pytest

from orchestrator.cli import main


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts a command and hands back its first line."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    processes = []

    def start(*words):
        command = [sys.executable, "-m", "orchestrator", *words, "--home", str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process, process.stdout.readline()

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def port_of(line):
    return int(line.split("/")[2].rpartition(":")[2])


def status_of(port, host="localhost"):
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/", headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


def test_serve_says_where_it_is_and_ends_with_control_c(started, tmp_path):
    process, line = started("serve", "--port", "0")
    port = port_of(line)
    assert line == f"http://127.0.0.1:{port}/ follows the studies in {tmp_path}; Ctrl-C ends it\n"
    assert status_of(port) == 200
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


def test_serve_says_that_it_is_open_to_the_network(started):
    process, line = started("serve", "--port", "0", "--host", "0.0.0.0")
    assert status_of(port_of(line), "10.0.0.1") == 200
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == "open to whoever reaches 0.0.0.0: there is no password\n"


def test_mlflows_own_pages_end_with_the_command_however_that_ends(started, tmp_path):
    (tmp_path / "mlflow.db").touch()
    process, line = started("ui", "--port", "0")
    port = port_of(line)
    assert (status_of(port), status_of(port, "evil.example")) == (200, 403)
    os.kill(process.pid, signal.SIGKILL)
    limit = time.monotonic() + 30
    while _is_open(port):
        assert time.monotonic() < limit, "MLflow's server was left behind"
        time.sleep(0.1)
    assert not (tmp_path / "mlruns").exists()


def _is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_ui_of_a_home_without_runs_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["ui", "--home", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == f"ancre: {tmp_path / 'mlflow.db'}: no run was recorded there yet; start a study first\n"


def test_ui_of_a_server_says_its_address_without_its_password(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:hunter2@runs.example:5000")
    assert main(["ui", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "https://***@runs.example:5000 has the runs, as MLFLOW_TRACKING_URI says: open that\n"
    )


@pytest.mark.parametrize("port", ["-1", "65536", "x", "²"])
def test_a_port_that_is_none_is_one_line(port, capsys):
    with pytest.raises(SystemExit) as left:
        main(["serve", "--port", port])
    assert left.value.code == 2 and "should be a port from 0 to 65535" in capsys.readouterr().err

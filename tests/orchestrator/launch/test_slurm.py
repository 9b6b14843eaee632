"""The batch script runs as it would under SLURM, with a stand-in for srun whose nodes are processes of this machine."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from analysis.names import FINISHED, PAUSED
from orchestrator.launch.slurm import SCRIPT
from orchestrator.record.ledger import History
from tests.orchestrator.launch.conftest import NAME, check_no_secret, write_study

pytestmark = pytest.mark.timeout(600)
BIN = Path(__file__).parent / "slurm"
JOB = "4711"
PATIENCE = 240  # seconds; on a machine that does nothing else a tenth is enough


class Batch:
    """The script of a job as SLURM's daemon would start it."""

    def __init__(self, job: Path, home: Path, restarts: int, nodes: str) -> None:
        self.requeued = home / "requeued"
        self._temporary = Path(f"/tmp/ancre-{JOB}{os.getpid()}")
        self._study = home / "studies" / NAME
        environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "SLURM_JOB_ID": f"{JOB}{os.getpid()}",
            "SLURM_JOB_NODELIST": nodes,
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_RESTART_COUNT": str(restarts),
            "REQUEUED": str(self.requeued),
        }
        self._output = home / "slurm.out"
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                ["bash", job / SCRIPT], env=environment, cwd=job, stdout=output, stderr=output, start_new_session=True
            )

    def wait_for(self, state: str, count: int) -> None:
        limit = time.monotonic() + PATIENCE
        while self.states().count(state) < count:
            assert self.process.poll() is None and time.monotonic() < limit, self.said()
            time.sleep(0.1)

    def states(self) -> list[str]:
        return [record.state for record in History(self._study).trials.values()]

    def end(self) -> int:
        """Its exit code, once all that it started is gone."""
        code = self.process.wait(PATIENCE)
        assert not self._temporary.exists()
        limit = time.monotonic() + 10
        while (left := processes(self._temporary)) and time.monotonic() < limit:
            time.sleep(0.2)
        assert not left, left
        return code

    def said(self) -> str:
        return self._output.read_text(errors="replace")


@pytest.fixture
def batch(home):
    """Starts a job's script; what a failed test leaves is told to end."""
    started = []

    def start(job: Path, restarts: int, nodes: str) -> Batch:
        started.append(Batch(job, home, restarts, nodes))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(PATIENCE)


def processes(temporary: Path) -> list[str]:
    """Those of this job's Ray, whose words name its folder."""
    listed = subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(temporary) in line]


def test_a_job_of_three_nodes_pauses_near_its_limit_and_finishes_when_it_is_queued_again(launch, batch, home, tmp_path):
    path = write_study(tmp_path, sleep=0.3)
    job = Path(re.search(r"^job: (.*)$", launch(path, "--on", "slurm", "--nodes", 3), re.MULTILINE)[1])
    first = batch(job, restarts=0, nodes="a,b,c")
    first.wait_for(FINISHED, 1)
    assert processes(Path(f"/tmp/ancre-{JOB}{os.getpid()}"))
    first.process.send_signal(signal.SIGUSR1)
    assert first.end() == 128 + signal.SIGTERM, first.said()
    assert first.requeued.read_text().split() == [f"{JOB}{os.getpid()}"]
    assert PAUSED in first.states() and "it_s: 4 of 4 trials to run, 3 at a time" in first.said()

    again = batch(job, restarts=1, nodes="a,b,c")
    assert again.end() == 0, again.said()
    assert again.states() == [FINISHED] * 4
    assert "start 2" in again.said() and again.requeued.read_text().count("\n") == 1
    check_no_secret(home, again.said())


def test_a_job_that_is_pre_empted_before_its_nodes_are_there_ends(launch, batch, study_file):
    job = Path(re.search(r"^job: (.*)$", launch(study_file, "--on", "slurm"), re.MULTILINE)[1])
    one = batch(job, restarts=0, nodes="a")
    time.sleep(2)
    one.process.terminate()
    assert one.end() == 128 + signal.SIGTERM, one.said()
    assert not one.requeued.exists()  # SLURM does that

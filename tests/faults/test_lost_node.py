"""Machines of a cluster are lost while they work: one of three, then the head. What ran there runs again."""

import time

import pytest

from analysis import names
from orchestrator.record import spool
from orchestrator.record.ledger import History
from orchestrator.study.spec import Study
from orchestrator.sweep import cluster
from tests.faults.driver import Driver, starts, states, wait_for

STEPS = 20
# As on a cluster whose control service is not waited for as long.
ANCRE = """
import sys
from orchestrator.cli import main
from orchestrator.sweep import pulse
pulse.CLUSTER = 4
sys.exit(main())
"""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def three_machines():
    """One CPU each, and none for trials on the head."""
    cluster.configure()
    from ray.cluster_utils import Cluster

    node = {"include_dashboard": False, "object_store_memory": cluster.OBJECT_STORE}
    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **node})
    yield machines, [machines.add_node(num_cpus=1, **node) for _ in range(2)]
    machines.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the killed nodes' pipes
def test_a_lost_node_costs_no_trial_and_a_lost_head_ends_the_driver(three_machines, tmp_path):
    machines, nodes = three_machines
    study = Study(
        name="lost",
        workload="tests.orchestrator.sweep_workload",
        seeds=[0, 1, 2, 3],
        trial={"train": {"steps": STEPS, "sleep": 0.4}},
    )
    path = tmp_path / "lost.toml"
    path.write_text(study.to_toml())
    driver = Driver("start", path, "--home", tmp_path, "--address", machines.address, code=ANCRE)
    wait_for(driver, tmp_path, "lost", names.RUNNING, 2)
    time.sleep(1.5)
    machines.remove_node(nodes[0], allow_graceful=False)
    wait_for(driver, tmp_path, "lost", names.FINISHED, 1)
    machines.remove_node(machines.head_node, allow_graceful=False)
    began = time.monotonic()
    code, said = driver.end()
    assert code == 3 and time.monotonic() - began < 40, said
    assert "Ray's control service at" in said and said.rstrip().endswith(f"ancre resume lost --home {tmp_path}")
    left = states(tmp_path, "lost")
    assert left[names.FINISHED] >= 1 and left[names.FAILED] == 0 and left.total() == 4

    code, said = Driver("resume", "lost", "--home", tmp_path).end()
    assert code == 0, said
    for record in History(tmp_path / "studies" / "lost").trials.values():
        trial = tmp_path / "studies" / "lost" / "trials" / record.id
        assert record.state == names.FINISHED
        assert [row["step"] for row in spool.rows(trial)] == list(range(1, STEPS + 1))
    again = [first for begun in starts(tmp_path, "lost").values() for first in begun[1:]]
    assert any(int(step) > 1 for step in again)  # from its checkpoint

"""A machine of the cluster is lost while it works: its trial runs again elsewhere, from its newest checkpoint."""

import threading
import time

import pytest

from analysis import names
from orchestrator.record import spool
from orchestrator.record.ledger import LEDGER_FILE, History
from orchestrator.study.spec import Study
from orchestrator.sweep import cluster
from orchestrator.sweep.run import start

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def two_machines():
    """A cluster of two nodes with one CPU each, and the one that may go."""
    cluster.configure()
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": cluster.OBJECT_STORE}
    machines = Cluster(initialize_head=True, head_node_args=node)
    yield machines, machines.add_node(**node)
    machines.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the killed node's pipes
def test_a_lost_node_costs_no_trial(two_machines, tmp_path):
    machines, node = two_machines
    study = Study(
        name="lost",
        workload="tests.orchestrator.sweep_workload",
        seeds=[0, 1, 2],
        trial={"train": {"steps": 10, "sleep": 0.2}},
    )
    folder = tmp_path / "studies" / "lost"

    def lose() -> None:
        ledger = folder / LEDGER_FILE
        while not ledger.exists() or ledger.read_text().count('"event":"running"') < 2:
            time.sleep(0.05)
        time.sleep(1)
        machines.remove_node(node, allow_graceful=False)

    losing = threading.Thread(target=lose)
    losing.start()
    done = start(study, tmp_path, address=machines.address)
    losing.join()
    assert done.trials == {names.FINISHED: 3}
    begun = {}
    for record in History(folder).trials.values():
        trial = folder / "trials" / record.id
        assert [row["step"] for row in spool.rows(trial)] == list(range(1, 11))
        begun[record.id] = (trial / "starts").read_text().split()
    assert sorted(map(len, begun.values())) == [1, 1, 2]
    assert max(int(first) for starts in begun.values() for first in starts) > 1

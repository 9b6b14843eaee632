"""LLaMA pre-training over two machines of two workers each: the losses of one worker, also where a machine is lost."""

import threading
import time
from pathlib import Path

import pytest

from analysis import names
from orchestrator.record import spool
from orchestrator.record.ledger import History
from orchestrator.study.spec import Study
from orchestrator.sweep import cluster
from orchestrator.sweep.run import start
from orchestrator.workloads.base import Place

pytestmark = pytest.mark.timeout(900)
NODE = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": cluster.OBJECT_STORE}


@pytest.fixture(scope="module")
def machines():
    cluster.configure()
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args=NODE)
    yield found
    found.shutdown()


@pytest.fixture
def node(machines):
    """The second machine."""
    return machines.add_node(**NODE)


def study(name: str, text: Path, steps: int, resources: dict, **train) -> Study:
    return Study(
        name=name,
        workload="llm",
        trial={
            "model": {"width": 16, "ffn_width": 24, "depth": 2, "heads": 2, "vocab_size": 280},
            "topology": {"kind": "ancre"},
            "optim": {"kind": "adamw", "lr": 0.01},
            "data": {"kind": "files", "path": str(text)},
            "text": {"sequence": 16, "val_fraction": 0.2},
            "train": {"steps": steps, "batch": 8, "log_every": 1, "checkpoint_every": 2, "eval_tokens": 200, **train},
        },
        resources={"workers": 4, **resources},
    )


def losses(rows) -> dict[int, tuple[float, float]]:
    """The loss and the length of the gradient, by step."""
    return {step: (metrics[names.TRAIN_LOSS], metrics["train/gradient_norm"]) for step, metrics in rows}


def of_one_worker(made: Study, folder: Path) -> dict:
    trial = made.cell(*next((name, arm.first) for name, arm in made.resolved.items())).trial
    return losses((row.step, row.metrics) for row in trial.rows(Place(folder / "alone", folder / "cache")))


def recorded(home: Path, made: Study) -> dict:
    (record,) = History(home / "studies" / made.name).trials.values()
    rows = spool.rows(home / "studies" / made.name / "trials" / record.id)
    return losses((row["step"], row["metrics"]) for row in rows)


def same(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    for step, numbers in ours.items():
        assert numbers == pytest.approx(theirs[step], rel=1e-5)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the killed node's pipes
def test_four_workers_on_two_machines_follow_one(machines, node, text_file, tmp_path):
    made = study("four", text_file, 6, {}, sharding="fsdp")
    assert start(made, tmp_path, address=machines.address).trials == {names.FINISHED: 1}
    same(recorded(tmp_path, made), of_one_worker(made, tmp_path))
    machines.remove_node(node)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_lost_machine_leaves_its_trial_to_the_other(machines, node, text_file, tmp_path):
    """Four workers become two, which go on from the newest checkpoint, to the losses of one."""
    made = study("fewer", text_file, 60, {"min_workers": 2})
    trials = tmp_path / "studies" / made.name / "trials"

    def lose() -> None:
        while not any(trials.glob("*/checkpoints/step-*/commit.json")):
            time.sleep(0.02)
        machines.remove_node(node, allow_graceful=False)

    losing = threading.Thread(target=lose)
    losing.start()
    done = start(made, tmp_path, address=machines.address)
    losing.join()
    assert done.trials == {names.FINISHED: 1}
    same(recorded(tmp_path, made), of_one_worker(made, tmp_path))

"""What every workload must do. A new file in `orchestrator/workloads` is tested by being there.

Where its defaults make a long run, a short example goes into `TABLES`.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.snapshot import Network
from orchestrator import kinds
from orchestrator.errors import Diverged
from orchestrator.sweep import cluster
from orchestrator.workloads.base import Place, Row, TrialSpec

# A trial of a second at most that learns, reports five times and saves twice, for workloads whose defaults are larger.
ANCRE = {"kind": "ancre", "temperature": 0.5}
TABLES: dict[str, dict[str, Any]] = {
    "lnn": {
        "model": {"depth": 3, "width": 6, "rank": 2},
        "topology": ANCRE,
        "optim": {"kind": "sgd", "lr": 1e-2, "momentum": 0.9},
        "train": {"steps": 10, "log_every": 2, "checkpoint_every": 4},
    },
    "llm": {
        "model": {"width": 8, "ffn_width": 16, "depth": 2, "heads": 2, "vocab_size": 260},
        "topology": ANCRE,
        "optim": {"kind": "adamw", "lr": 1e-2},
        "data": {"kind": "files"},  # its path: the fixture
        "text": {"sequence": 8, "val_fraction": 0.4},
        "train": {"steps": 10, "batch": 4, "log_every": 2, "eval_every": 4, "checkpoint_every": 4},
    },
    "overhead": {
        "model": {"width": 8, "ffn_width": 16, "depth": 2, "heads": 2, "vocab_size": 16},
        "topology": ANCRE,
        "optim": {"kind": "adamw", "lr": 1e-2},
        "train": {"sequence": 8, "batch": 4, "rounds": 10, "log_every": 2},
    },
    "crl": {
        "env": {"kind": "point", "layout": "open", "episode_length": 40},
        "model": {"num_blocks": 2, "width": 32},
        "topology": ANCRE,
        "agent": {"repr_dim": 16, "lr_actor": 3e-3, "lr_critic": 3e-3, "lr_alpha": 3e-2},
        "train": {
            "env_steps": 9600,
            "num_envs": 32,
            "unroll": 20,
            "gradient_steps": 20,
            "batch": 64,
            "slots": 300,
            "prefill": 60,
            "window": 40,
            "eval_envs": 32,
            "eval_every": 1920,
            "checkpoint_every": 3840,
            "save_buffer": True,
        },
    },
}
TOO_FAST: dict[str, tuple[str, str]] = {"crl": ("agent", "lr_critic")}  # a rate that ruins a run, where not optim.lr

# They measure and do not learn, so that nothing is saved: a killed run begins again.
MEASURES = {"overhead"}

SPEED = re.compile("_per_s|^time/|^overhead/slowdown|^memory/")  # or told once after each start
KINDS = kinds.names("workload")
pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module", autouse=True)
def ray_here() -> Iterator[None]:
    """One Ray for those that need one: each run would start its own."""
    cluster.configure()
    with cluster.connected(None):
        yield


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and the cache of what is made from it."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "corpus").mkdir()
    for number in range(12):
        (folder / "corpus" / f"{number}.txt").write_text(
            f"Document {number} counts to {number + 1} and no further. " * 3
        )
    return folder


@pytest.fixture
def table(kind: str, shared: Path) -> dict[str, Any]:
    table = {"workload": kind} | TABLES.get(kind, {})
    if table.get("data") == {"kind": "files"}:
        table["data"] = {"kind": "files", "path": str(shared / "corpus")}
    return table


@pytest.fixture
def trial(kind: str, table: dict[str, Any]) -> TrialSpec:
    return read(kind, table)


@pytest.fixture
def learns(kind: str) -> None:
    if kind in MEASURES:
        pytest.skip(f"{kind} measures, it does not learn")


@pytest.fixture
def place(tmp_path: Path, shared: Path) -> Place:
    return Place(tmp_path / "trial", shared / "cache")


def read(kind: str, table: dict[str, Any]) -> TrialSpec:
    trial = kinds.find("workload", kind).model_validate(table)
    assert isinstance(trial, TrialSpec)
    return trial


def rows(trial: TrialSpec, place: Place) -> list[Row]:
    trial.prepare(place.cache)
    return list(trial.rows(place))


def results(rows: list[Row]) -> dict[int, dict[str, float]]:
    """Metrics by step, without those of speed."""
    return {row.step: {name: row.metrics[name] for name in row.metrics if not SPEED.search(name)} for row in rows}


def test_spec_survives_json_and_hashing(kind: str, trial: TrialSpec) -> None:
    again = read(kind, json.loads(trial.model_dump_json()))
    assert again == trial and hash(again) == hash(trial)
    assert (again.cell, again.id) == (trial.cell, trial.id)
    assert trial.workload == kind
    assert kinds.summary("workload", kind)


def test_a_cell_is_all_but_the_seed(kind: str, trial: TrialSpec, table: dict[str, Any]) -> None:
    other = trial.with_seed(trial.seed + 1)
    assert other.seed == trial.seed + 1
    assert other.cell == trial.cell and other.id != trial.id
    assert read(kind, table | {"topology": {"kind": "cascaded"}}).cell != trial.cell


def test_a_topology_that_does_not_fit_is_refused(kind: str, table: dict[str, Any]) -> None:
    topology = {"kind": "shortcuts", "shortcuts": "0:1000000"}
    with pytest.raises(ValueError, match="0:1000000"):
        read(kind, table | {"topology": topology})


def test_estimate_is_positive(trial: TrialSpec) -> None:
    estimate = trial.estimate()
    assert min(estimate.params, estimate.topology_params, estimate.flops, estimate.memory) > 0
    assert (estimate.disk > 0) == (trial.workload not in MEASURES)


def test_rows_rise_to_the_last_step_and_end_with_the_metric(trial: TrialSpec, place: Place) -> None:
    reports = rows(trial, place)
    steps = [row.step for row in reports]
    assert len(steps) >= 5
    assert steps == sorted(set(steps))
    assert steps[-1] == trial.total_steps
    assert trial.default_metric in reports[-1].metrics
    for row in reports:
        assert row.metrics
        assert all(isinstance(value, float) and math.isfinite(value) for value in row.metrics.values())


@pytest.mark.usefixtures("learns")
def test_it_learns(trial: TrialSpec, place: Place) -> None:
    values = [row.metrics[trial.default_metric] for row in rows(trial, place) if trial.default_metric in row.metrics]
    assert len(values) >= 2
    assert values[-1] < values[0] if trial.default_mode == "min" else values[-1] > values[0]


@pytest.mark.usefixtures("learns")
def test_the_last_row_carries_every_topology(trial: TrialSpec, place: Place) -> None:
    topologies = rows(trial, place)[-1].topology
    assert topologies
    networks = [Network.model_validate_json(json.dumps(entry)) for entry in topologies.values()]
    trained = sum(len(network.c or ()) for network in networks if any(map(any, network.trained)))
    assert trained == trial.estimate().topology_params
    assert any(any(network.c or ()) for network in networks)  # they started at 0 and have moved


def test_the_seed_decides_the_rows(trial: TrialSpec, place: Place, tmp_path: Path) -> None:
    again, other = (Place(tmp_path / name, place.cache) for name in ("again", "other"))
    first = results(rows(trial, place))
    assert results(rows(trial, again)) == first
    assert results(rows(trial.with_seed(trial.seed + 1), other)) != first


@pytest.mark.parametrize("reports", [1, 3, 4])
def test_a_killed_run_goes_on_to_the_same_numbers(trial: TrialSpec, place: Place, tmp_path: Path, reports: int) -> None:
    straight = rows(trial, Place(tmp_path / "straight", place.cache))
    running = trial.rows(place)
    before = [next(running) for _ in range(reports)]
    running.close()
    after = rows(trial, place)
    kept = [row for row in before if row.step < after[0].step]  # as the spool does
    assert results([*kept, *after]) == results(straight)


@pytest.mark.usefixtures("learns")
def test_a_run_resumes_and_does_not_start_again(trial: TrialSpec, place: Place) -> None:
    straight = rows(trial, place)
    assert rows(trial, place)[0].step > straight[0].step


@pytest.mark.usefixtures("learns")
def test_a_checkpoint_of_another_trial_is_refused(trial: TrialSpec, place: Place) -> None:
    rows(trial, place)
    with pytest.raises(Exception, match="another trial"):
        rows(trial.with_seed(trial.seed + 1), place)


def test_a_loss_that_is_no_number_ends_the_run(
    kind: str, trial: TrialSpec, table: dict[str, Any], place: Place
) -> None:
    section, rate = TOO_FAST.get(kind, ("optim", "lr"))
    trial = read(kind, table | {section: trial.model_dump()[section] | {rate: 1e30}})
    with pytest.raises(Diverged) as caught:
        rows(trial, place)
    assert 0 < caught.value.step <= trial.total_steps


def test_planning_imports_no_torch(table: dict[str, Any]) -> None:
    program = (
        "import json, sys\n"
        "from orchestrator import kinds\n"
        "table = json.loads(sys.argv[1])\n"
        "trial = kinds.find('workload', table['workload']).model_validate(table)\n"
        "trial.estimate(), trial.id, trial.total_steps\n"
        "print(*{'torch', 'ray', 'jax', 'mlflow', 'pyarrow', 'tokenizers'} & set(sys.modules))\n"
    )
    run = subprocess.run([sys.executable, "-c", program, json.dumps(table)], check=True, capture_output=True, text=True)
    assert run.stdout.split() == []

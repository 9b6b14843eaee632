"""Diffusion as a study on two Ray Train workers: the rows of one process, pictures in MLflow and in the report."""

import json
from base64 import b64encode
from collections.abc import Iterator

import pytest

from analysis import names
from analysis.report import report
from analysis.store import open_store
from orchestrator.record import spool
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.sweep.run import start
from orchestrator.workloads.base import Place

from ..local_ray import local_ray

FLOAT = 4  # bytes


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    with local_ray(2):
        yield


@pytest.mark.usefixtures("ray_here")
def test_a_study_on_two_workers_has_the_rows_of_one_and_keeps_pictures(trial, steady, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    spec = trial(train={"batch": 6, "eval_every": 4, "checkpoint_every": 4})
    table = spec.model_dump(mode="json", exclude={"workload", "seed"}, exclude_none=True)
    study = Study(name="tiny", workload="dit", seeds=[0], trial=table, resources={"workers": 2})
    assert start(study, tmp_path).trials == {"finished": 1}
    folder = tmp_path / "studies" / "tiny" / "trials" / spec.id
    alone = list(spec.rows(Place(tmp_path / "alone", tmp_path / "cache")))
    found = spool.rows(folder)
    assert [row["step"] for row in found] == [row.step for row in alone]
    for ours, theirs in zip(found, alone, strict=True):
        losses = (names.TRAIN_LOSS, names.VAL_LOSS, "train/gradient_norm")
        one, two = ({name: held[name] for name in losses if name in held} for held in (ours["metrics"], theirs.metrics))
        assert one == pytest.approx(two, rel=1e-5)
    picture = (folder / names.SAMPLES_FILE).read_bytes()
    store = open_store(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = store.study("tiny").runs
    assert store.samples(run) == picture
    page = report(["tiny"], tmp_path / "report.html", store.backend.uri).path.read_text()
    assert b64encode(picture).decode() in page and "Learned topology" in page
    assert json.loads((folder / names.TOPOLOGY_FILE).read_text())["networks"]["dit"]["depth"] == 2
    assert {file.name for file in (folder / "checkpoints").iterdir()} >= {"step-00000004", "step-00000008"}


def test_a_plan_counts_training_drawing_and_what_is_kept(trial):
    def estimate(**sections):
        return trial(**sections).estimate()

    plain = estimate()
    network = trial().model.build(trial().topology)
    mixing = sum(topology.c.numel() for topology in network.topologies().values())
    assert plain.topology_params == mixing
    assert plain.params == sum(p.numel() for p in network.parameters()) - mixing
    image = trial().model.flops_per_image()
    assert plain.flops == pytest.approx(image * 8 * 7 + image / 3 * 24 * 3 * 3, rel=1e-3)  # guided images take 2 of 3
    unguided = estimate(evaluate={"sampling": {"steps": 3}})
    assert plain.flops - unguided.flops == pytest.approx(image / 3 * 24 * 3 * 2, rel=1e-3)
    twice = estimate(train={"eval_every": 4})
    assert twice.flops - plain.flops == pytest.approx(image / 3 * 24 * 3 * 3, rel=1e-3)
    kept = plain.params + plain.topology_params
    assert plain.disk == 0 and estimate(train={"checkpoint_every": 4}).disk == 3 * 4 * kept * FLOAT
    assert plain.memory_parts[names.MEMORY_AVERAGES] == kept * FLOAT


def test_table_3_plans_with_its_costs():
    made = plan(Study.read("paper_table3"))
    by_arm = {side.arm: side for side in made.sides}
    small, base = by_arm["s2_keep"], by_arm["b2_keep"]
    assert (small.params, base.params) == ((32_865_056,) * 2, (130_315_808,) * 2)
    assert small.topology_params == base.topology_params == (78, 78)
    assert 0.5 < base.flops / (400_000 * 256 * 3 * 2 * 23.01e9) < 1.5  # 23.01 G multiplications a forward: 2212.09748
    assert base.memory < 80e9

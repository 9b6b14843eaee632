"""Several workers against one: the same losses, the same held-out perplexity, each other's checkpoints."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis import names

COUNT = Path(__file__).with_name("count_syncs.py")
STEPS = {"steps": 8, "batch": 7, "log_every": 2, "checkpoint_every": 4}


def told(rows) -> list[list]:
    """Rows as the processes print them."""
    return [[row.step, dict(row.metrics), row.topology, row.depths] for row in rows]


def equal(ours: list, theirs: list, rel: float = 1e-5) -> None:
    """Rows of one worker and of several: all numbers but speed, memory and what depends on how batches are cut."""
    assert [row[0] for row in ours] == [row[0] for row in theirs]
    for (_, metrics, topology, _), (_, other, other_topology, _) in zip(ours, theirs, strict=True):
        assert steady(metrics) == pytest.approx(steady(other), rel=rel)
        assert (topology is None) == (other_topology is None)
        if topology:
            np.testing.assert_allclose(topology["decoder"]["p"], other_topology["decoder"]["p"], rtol=1e-4)


def steady(metrics: dict) -> dict:
    apart = (names.TOKENS_PER_S, names.PERPLEXITY_GALORE_COMPAT)
    return {name: value for name, value in metrics.items() if name not in apart and not name.startswith("memory/")}


@pytest.mark.parametrize("packing", ["concat", "none"])
@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_two_workers_follow_one(packing, sharding, trial, run, spread):
    """A batch of 7 is 3 and 4 sequences, in micro-batches that differ in number; unpacked, also in tokens."""
    spec = trial(text={"packing": packing}, train=STEPS | {"sharding": sharding, "clip": 1.0})
    alone = told(run(spec, "alone"))
    first, second = spread(spec, "pair")
    equal(first, alone)
    assert [row[:3] for row in first] != []
    assert [steady(row[1]) for row in first] == [steady(row[1]) for row in second]


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_a_checkpoint_serves_any_number_of_workers(sharding, trial, run, spread):
    spec = trial(text={"packing": "none"}, train=STEPS | {"sharding": sharding, "micro_batch": 1})
    alone = told(run(spec, "alone"))
    stopped, _ = spread(spec, "shared", 2, rows=3)
    assert [row[0] for row in stopped] == [2, 4, 6]
    three, *_ = spread(spec, "shared", 3, rows=2)
    assert [row[0] for row in three] == [4, 6]
    equal(three, alone[1:3])
    one = told(run(spec, "shared"))
    equal(one, alone[1:])


def test_a_missing_rank_leaves_the_checkpoint_before_it(trial, run, spread, tmp_path):
    spec = trial(train=STEPS | {"sharding": "fsdp"})
    both, _ = spread(spec, "torn", 2)
    newest = tmp_path / "torn" / "checkpoints" / "step-00000008"
    parts = sorted(newest.glob("*.distcp"))
    assert len(parts) == 2
    parts[1].unlink()
    again = told(run(spec, "torn"))
    assert [row[0] for row in again] == [4, 6, 8]
    equal(again, both[1:])


@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_every_way_of_training_is_the_same_on_two_workers(sharding, trial, run, spread):
    """With blocks computed again in backward, values of the first block in all, and looks into each depth."""
    spec = trial(
        model={"value_residual": True, "depth": 4},
        topology={"kind": "ancre-sparse", "segment": 2, "temperature": 0.1},
        train={"steps": 4, "batch": 8, "micro_batch": 2, "log_every": 1, "sharding": sharding}
        | {"activation_checkpointing": True, "depths_every": 2, "precision": "bf16-mixed"},
    )
    alone = told(run(spec, "alone"))
    first, second = spread(spec, "pair")
    equal(first, alone, rel=2e-2)
    assert [sorted(row[3] or {}) for row in first] == [[], sorted(names.DEPTHS)] * 2
    assert first[1][3][names.DEPTH_GRADIENT_NORM] == second[1][3][names.DEPTH_GRADIENT_NORM]
    assert first[1][3][names.DEPTH_GRADIENT_NORM] == pytest.approx(alone[1][3][names.DEPTH_GRADIENT_NORM], rel=0.05)


@pytest.mark.parametrize(("workers", "more"), [(2, {"sharding": "fsdp"}), (4, {"stages": 2})])
def test_a_share_below_a_micro_batch_follows_one(workers, more, trial, run, spread):
    spec = trial(train={"steps": 2, "batch": 8, "micro_batch": 8, "log_every": 1} | more)
    alone = told(run(spec.model_copy(update={"train": spec.train.model_copy(update={"stages": 1})}), "alone"))
    first, *_ = spread(spec, "shared", workers)
    equal(first, alone)


def test_sharded_workers_keep_half_each(trial, spread):
    small = trial(train={"steps": 1, "sharding": "fsdp"})
    ((_, metrics, *_),), _ = spread(small, "pair")
    half = small.estimate().memory_parts[names.MEMORY_PARAMETERS] / 2
    assert metrics[names.MEMORY_PARAMETERS] == pytest.approx(half, rel=0.01)
    assert metrics[names.MEMORY_GRADIENTS] == pytest.approx(half, rel=0.01)
    assert metrics[names.MEMORY_OPTIMIZER] == pytest.approx(2 * half, rel=0.03)
    assert metrics[names.MEMORY_PARAMETERS + names.ESTIMATED] == pytest.approx(half, rel=0.01)


@pytest.mark.parametrize(("workers", "packing"), [(2, "concat"), (4, "none")])
def test_a_pipeline_follows_one(workers, packing, trial, run, spread):
    """Two stages, alone or twice: losses, held-out losses, checkpoints and where a run diverges."""
    spec = trial(
        model={"depth": 4},
        topology={"kind": "ancre-sparse", "segment": 2, "temperature": 0.1},
        text={"packing": packing},
        train=STEPS | {"batch": 8, "micro_batch": 2, "stages": 2, "clip": 1.0},
    )
    one = told(run(spec.model_copy(update={"train": spec.train.model_copy(update={"stages": 1})}), "alone"))
    first, *_ = spread(spec, "line", workers, rows=3)
    again, *others = spread(spec, "line", workers)
    equal(first + again[2:], one)
    assert [row[0] for row in again] == [4, 6, 8]
    assert all([steady(row[1]) for row in other] == [steady(row[1]) for row in again] for other in others)


def test_workers_talk_once_a_step_however_many_micro_batches():
    """FSDP once for each of two blocks, and for what lies around them."""
    counted = subprocess.run([sys.executable, COUNT], capture_output=True, text=True, check=True)
    once = {"ddp": {"all_reduce": 1}, "fsdp": {"reduce_scatter": 3}}
    assert json.loads(counted.stdout) == {way: {"1": counts, "4": counts} for way, counts in once.items()}

"""Whole runs on RLlib: resumed against straight, spread against local, and what a run holds on to."""

import copy
import gc
import json
import logging
import math
from pathlib import Path

import pytest
import torch

from analysis import names
from orchestrator.crl.agent import Topologies
from orchestrator.crl.algorithm import CRL, CRLConfig
from orchestrator.crl.learner import CRLLearner
from orchestrator.crl.module import Setup
from orchestrator.errors import Diverged, InputError
from orchestrator.workloads.base import Place
from orchestrator.workloads.crl import Spec

from .conftest import small

pytestmark = pytest.mark.usefixtures("ray_here")
SPEED = {names.ENV_STEPS_PER_S, names.GRAD_STEPS_PER_S, *names.TIMES}


def results(rows):
    return [
        (row.step, {name: value for name, value in row.metrics.items() if name not in SPEED}, row.topology)
        for row in rows
    ]


def algorithm(spec: Spec) -> CRL:
    plan = Setup(spec.env, spec.model, Topologies(*spec.topologies), spec.agent, spec.train, spec.seed)
    return CRLConfig().of(plan).build_algo()


def test_rows_are_evaluations_from_the_untrained_policy_to_the_last_step(place):
    spec = small()
    rows = list(spec.rows(place))
    assert [row.step for row in rows] == [240, 400, 560, 720]
    assert rows[-1].step == spec.total_steps
    assert set(rows[-1].metrics) == set(Spec.metrics)
    assert set(rows[-1].topology) == {"actor", "phi", "psi"}
    assert all(math.isfinite(value) for row in rows for value in row.metrics.values())
    assert all(row.metrics[name] >= 0 for row in rows for name in names.TIMES)


@pytest.mark.parametrize("reports", [1, 3])
def test_a_resumed_run_is_the_straight_run_bit_by_bit(place, tmp_path, reports):
    spec = small(train={"checkpoint_every": 240})  # saved between reports, too
    straight = list(spec.rows(Place(tmp_path / "straight", place.cache)))
    running = spec.rows(place)
    before = [next(running) for _ in range(reports)]
    running.close()
    after = list(spec.rows(place))
    kept = [row for row in before if row.step < after[0].step]
    assert results([*kept, *after]) == results(straight)
    assert after[0].step > straight[0].step or reports == 1
    ours, theirs = (
        torch.load(folder / "checkpoints" / "step-00000720" / "state.pt")
        for folder in (place.folder, tmp_path / "straight")
    )
    del ours["seconds"], theirs["seconds"]
    assert same(ours, theirs)


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_without_its_buffer_a_resumed_run_fills_it_again_and_says_so(place, caplog):
    spec = small(train={"save_buffer": False, "checkpoint_every": 400})
    running = spec.rows(place)
    steps = [next(running).step, next(running).step]
    running.close()
    (file,) = place.folder.rglob("state.pt")
    assert not any("replay" in learner for learner in torch.load(file)["algorithm"]["learners"])
    with caplog.at_level(logging.WARNING):
        after = list(spec.rows(place))
    assert "the buffer was not saved with step 400" in caplog.text
    assert [row.step for row in after] == [steps[-1], 560, 720]
    caplog.clear()
    assert [row.step for row in spec.rows(place)] == [720]  # nothing is left to train for
    assert not caplog.text


@pytest.mark.parametrize(
    "change", [{"env": {"layout": "u"}}, {"model": {"num_blocks": 4}}, {"train": {"unroll": 5}}], ids=str
)
def test_a_checkpoint_of_another_environment_or_depth_is_refused_in_one_line(place, change):
    list(small().rows(place))
    with pytest.raises(InputError, match="belongs to another trial") as caught:
        next(small(**change).rows(place))
    assert "\n" not in str(caught.value)
    assert next(iter(next(iter(change.values())))) in str(caught.value)


def test_more_processes_than_ray_has_room_for_are_refused(place):
    with pytest.raises(InputError, match=r"train\.env_runners 4 and train.learners 4 take 8 CPUs, and Ray has 6"):
        next(small(train={"env_runners": 4, "learners": 4}).rows(place))


def test_a_loss_that_is_no_number_ends_the_run(place):
    with pytest.raises(Diverged) as caught:
        list(small(agent={"lr_critic": 1e30}).rows(place))
    assert 240 < caught.value.step <= 720


def test_one_remote_runner_and_learner_do_what_local_ones_do(place, tmp_path):
    local = list(small().rows(Place(tmp_path / "local", place.cache)))
    remote = list(small(train={"env_runners": 1, "learners": 1}).rows(place))
    assert results(remote) == results(local)


def test_several_runners_and_learners_share_the_work_and_go_on_exactly():
    ours = algorithm(small(train={"env_runners": 2, "learners": 2}))
    try:
        ours.train()
        assert same(*ours._learners(CRLLearner.weights))  # their gradients were averaged
        state = copy.deepcopy(ours.state())
        assert [learner["replay"]["rows"].shape[:2] for learner in state["learners"]] == [(40, 4)] * 2
        assert [len(runner["episode"]) for runner in state["runners"]] == [4, 4]
        assert not torch.equal(*(learner["replay"]["rows"] for learner in state["learners"]))
        ends = []
        for _ in range(2):
            ours.train()
            ends.append((ours._learners(CRLLearner.weights), ours.take_losses(), ours.evaluate()))
            ours.go_on(state)
        assert same(*ends)
        assert not same(ends[0][0][0], state["agent"]["networks"])
    finally:
        ours.stop()


def test_rllib_saves_and_restores_it_too(tmp_path):
    ours = algorithm(small())
    try:
        ours.train()
        ours.save_to_path(str(tmp_path / "rllib"))
        before = {name: value.clone() for name, value in ours.learner_group._learner.agent.state_dict().items()}
        ours.train()
        ours.restore_from_path(str(tmp_path / "rllib"))
        assert same(dict(ours.learner_group._learner.agent.state_dict()), before)
    finally:
        ours.stop()


def test_memory_is_flat_over_fifty_training_steps():
    ours = algorithm(small())
    try:
        for _ in range(10):
            ours.train()
        before = resident()
        for _ in range(50):
            ours.train()
        assert resident() - before < 4 * 2**20
    finally:
        ours.stop()


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_what_is_kept_is_json(place):
    row = [*small().rows(place)][-1]
    json.dumps(row.metrics)
    json.dumps(row.topology)

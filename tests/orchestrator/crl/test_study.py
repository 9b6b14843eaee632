"""Contrastive RL as a study: what a trial takes, what a wrong one is told, and a sweep whose trials have processes."""

import json

import pytest
from pydantic import ValidationError

from analysis import names
from orchestrator.errors import InputError
from orchestrator.record import spool
from orchestrator.record.ledger import History
from orchestrator.study.machines import Machine
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.sweep.cluster import concurrency
from orchestrator.sweep.run import start
from orchestrator.workloads.crl import Spec

from .conftest import SMALL, small


def study(**train):
    trial = {**SMALL, "train": {**SMALL["train"], **train}}
    return Study(name="point", workload="crl", seeds=[0, 1], trial=trial)


@pytest.mark.usefixtures("ray_here")
def test_a_sweep_reserves_a_place_for_each_process_of_a_trial(tmp_path):
    done = start(study(env_runners=2), tmp_path)  # 3 CPUs each of 6
    assert done.trials == {"finished": 2}
    for record in History(tmp_path / "studies" / "point").trials.values():
        folder = tmp_path / "studies" / "point" / "trials" / record.id
        assert [row["step"] for row in spool.rows(folder)] == [240, 400, 560, 720]
        assert set(json.loads((folder / names.TOPOLOGY_FILE).read_text())["networks"]) == {"actor", "phi", "psi"}


def test_a_plan_counts_them():
    machine = Machine(cpus=8, memory=2**34)
    assert plan(study(), machines=[machine]).at_once == 2
    assert plan(study(env_runners=4, learners=2), machines=[machine]).at_once == 1
    resources = plan(study(env_runners=2), machines=[machine]).resources
    assert concurrency(resources, [machine]) == 2
    with pytest.raises(InputError, match=r"resources\.workers: .* workers should be 1, got 2"):
        plan(Study(name="point", workload="crl", trial=SMALL, resources={"workers": 2}))


def test_the_estimate_counts_what_is_built_and_kept(place):
    estimate = small().estimate()
    agent = built(small())
    mixing = sum(topology.c.numel() for topology in agent.topologies().values())
    assert estimate.params == sum(parameter.numel() for parameter in agent.parameters()) - mixing
    assert estimate.topology_params == mixing == 9
    assert small(train={"save_buffer": False}).estimate().disk < estimate.disk
    assert small(train={"checkpoint_every": 0}).estimate().disk == 0
    more = small(train={"slots": 120}).estimate()
    assert more.memory - estimate.memory == 60 * 8 * (4 * (4 + 2 + 2) + 8)
    assert more.disk - estimate.disk == 2 * 60 * 8 * 4 * (4 + 2 + 2)
    deep = small(model={"num_blocks": 4}).estimate()
    assert 1.5 < deep.flops / estimate.flops < 2


def built(spec: Spec):
    from orchestrator.crl.agent import Agent, Topologies

    return Agent(spec.agent, spec.model, Topologies(*spec.topologies), spec.env.contract, spec.seed)


@pytest.mark.usefixtures("ray_here")
def test_checkpoints_are_as_large_as_estimated(place):
    spec = small(model={"num_blocks": 4, "width": 128})
    list(spec.rows(place))
    saved = sum(file.stat().st_size for file in place.folder.rglob("state.pt"))
    assert 0.9 < saved / spec.estimate().disk < 1.2


def test_each_network_may_have_a_topology_of_its_own():
    spec = small(psi_topology={"kind": "cascaded"})
    assert [topology.kind for topology in spec.topologies] == ["ancre", "ancre", "cascaded"]
    assert spec.estimate().topology_params == 6
    assert spec.cell != small().cell


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("env", {"kind": "pont"}, "no env of kind 'pont'; did you mean 'point'? (there are:"),
        ("env", {"episode_length": 61}, "env.episode_length 61 does not fit into train.slots 60"),
        ("env", {"episode_length": 1}, "env.episode_length 1: an episode needs 2 steps"),
        ("train", {"unroll": 61}, "rows, which do not fit into 60 slots"),
        ("train", {"batch": 300}, "batch 300 is larger than the buffer's content after prefill"),
        ("train", {"env_runners": 3}, "env_runners 3 do not divide num_envs 8"),
        ("train", {"learners": 3}, "learners 3 do not divide num_envs 8"),
        ("train", {"learners": 8, "batch": 8}, "leaves a learner of 8 no second pair"),
        ("train", {"env_runners": 8}, "eval_envs 6 do not go round 8 env_runners"),
        ("topology", {"kind": "shortcuts", "shortcuts": "0:9"}, "0:9"),
    ],
    ids=str,
)
def test_a_wrong_trial_is_refused_in_one_line(section, values, message):
    table = {**SMALL, section: {**(SMALL[section] if section != "topology" else {}), **values}}
    with pytest.raises(ValidationError) as caught:
        Spec.model_validate(table)
    assert any(message in error["msg"] and "\n" not in error["msg"] for error in caught.value.errors()), caught.value


def test_a_depth_that_is_no_multiple_of_a_block_is_refused():
    with pytest.raises(ValidationError, match="depth 6 is not a multiple of 4"):
        Spec.model_validate({**SMALL, "model": {"depth": 6}})
    assert Spec.model_validate({**SMALL, "model": {"depth": 8, "width": 16}}) == small()

"""The studies of contrastive RL: they validate, plan, compare fairly, and are the published settings."""

import pytest

from analysis import published, published_depths
from orchestrator.study.plan import Plan, plan
from orchestrator.study.spec import Study
from orchestrator.workloads.crl import Spec

NAMES = ("rl_depth", "rl_paper", "rl_temperature", "rl_published_depth", "rl_published_tasks")
COMPARED = ("rl_depth", "rl_paper", "rl_temperature")
PUBLISHED_STEPS = 98_946_048  # env steps
TABLE_9 = {  # task -> the columns of our arms; the table itself is in analysis/published.toml
    "Humanoid": {"kind": "humanoid"},
    "Ant Big Maze": {"kind": "ant-maze", "layout": "big"},
    "Arm Push Hard": {"kind": "arm-push", "difficulty": "hard"},
    "Arm Binpick Hard": {"kind": "arm-binpick", "difficulty": "hard"},
}


@pytest.fixture(params=NAMES)
def made(request: pytest.FixtureRequest) -> Plan:
    return plan(Study.read(request.param))


def trials(made: Plan) -> list[Spec]:
    found = [cell.trial for cell in made.cells]
    return [trial for trial in found if isinstance(trial, Spec)]


def test_study_plans_and_says_what_it_may_refute(made: Plan) -> None:
    study = made.study
    assert study.hypothesis.endswith(".") and ". " not in study.hypothesis
    assert (study.mode, study.metric, len(study.seeds), study.resources.gpus) == ("max", "eval/time_at_goal", 3, 1)
    assert Study.parse(study.to_toml()) == study
    assert not [note for note in made.notes if "not tuned equally" in note]


def test_settings_are_the_published_ones(made: Plan) -> None:
    """Appendix E.4 of the paper, and what the code of Wang et al. (arXiv 2503.14858) runs."""
    for trial in trials(made):
        train, agent = trial.train, trial.agent
        assert trial.total_steps == PUBLISHED_STEPS and train.training_steps * train.gradient_steps == 2_480_000
        assert (train.num_envs, train.eval_envs, train.batch, train.unroll) == (512, 128, 512, 62)
        assert (train.slots, train.prefill, train.window) == (10_000, 1_000, 1_000)
        assert (agent.energy, agent.loss, agent.penalty, agent.gamma) == ("norm", "forward", 0.1, 0.99)
        assert (agent.repr_dim, agent.entropy_param) == (64, 0.5)
        assert {agent.lr_actor, agent.lr_critic, agent.lr_alpha} == {3e-4}
        assert trial.model.width == 256
        assert (trial.env.episode_length, trial.env.goal_resample) == (1000, "never")


@pytest.mark.parametrize("name", COMPARED)
def test_every_comparison_has_both_readings(name: str) -> None:
    kinds = [trial.topology for trial in trials(plan(Study.read(name)))]
    readings = [topology.inner_residual for topology in kinds if topology.kind == "ancre"]
    assert readings.count("keep") == readings.count("drop") > 0
    assert any(topology.kind == "cascaded" for topology in kinds)


def test_depths_are_those_that_the_study_is_of() -> None:
    blocks = {name: {trial.model.num_blocks for trial in trials(plan(Study.read(name)))} for name in NAMES}
    assert blocks == {
        "rl_depth": {4, 16, 32, 64},
        "rl_paper": {4, 16},
        "rl_temperature": {4, 16},
        "rl_published_depth": {1, 4, 8, 16},
        "rl_published_tasks": {1, 16},
    }


def test_temperatures_are_those_of_table_9() -> None:
    rows = {row.label: row.values for row in published.table("table9").rows}
    seen = set()
    for trial in trials(plan(Study.read("rl_paper"))):
        spec = trial.model_dump()
        (task,) = (name for name, env in TABLE_9.items() if env.items() <= spec["env"].items())
        seen.add((task, trial.model.num_blocks, trial.topology.kind))
        if trial.topology.kind == "ancre":
            assert spec["topology"]["temperature"] == rows[task][0 if trial.model.num_blocks == 4 else 1]
    assert len(seen) == 4 * 2 * 2


def test_every_published_value_has_its_configuration() -> None:
    """And nothing else is run: one published point is of a depth that no other task has."""
    ran, unpublished = set(), []
    for name in ("rl_published_depth", "rl_published_tasks"):
        for trial in trials(plan(Study.read(name))):
            spec = trial.model_dump(mode="json")
            depth = published_depths.depth_of(spec)
            beside = {(row.title, row.task, depth) for row in published_depths.rows() if row.matches(spec)}
            ran |= beside
            unpublished += [] if beside else [spec]
    every = {(row.title, row.task, depth) for row in published_depths.rows() for depth in row.values}
    assert every - ran == {("Time at goal", "Arm Push Easy", 32)}
    assert not unpublished


def test_plan_says_what_each_depth_took_those_who_published_it() -> None:
    made = plan(Study.read("rl_depth"))
    said = " ".join(made.text().split())
    assert "published hours of 98,946,048 env steps with cascaded connections on one A100 80 GB" in said
    assert "Humanoid, 4 blocks (depth 16): 3.4 h, x 15 = 51 h" in said
    assert "Humanoid, 64 blocks (depth 256): 41.4 h extrapolated, x 15 = 621 h" in said
    assert "model.num_blocks (depth = 4 x): 4, 16, 32, 64" in said
    hours = {row["axes"]["model.num_blocks"]: row["published_hours"] for row in made.rows()}
    assert hours == {
        4: pytest.approx(3.40),
        16: pytest.approx(10.99),
        32: pytest.approx(21.13),
        64: pytest.approx(41.41),
    }


def test_hours_scale_with_env_steps_and_are_absent_where_none_were_published() -> None:
    full, tenth = (Study.read("rl_depth", [f"train.env_steps={steps}"]) for steps in (100_000_000, 10_000_000))
    share = plan(tenth).cells[0].trial.total_steps / PUBLISHED_STEPS
    for a, b in zip(plan(full).rows(), plan(tenth).rows(), strict=True):
        assert b["published_hours"] == pytest.approx(share * a["published_hours"])
    assert "published hours" not in plan(Study.read("rl_depth", ["env.kind=point"])).text()
    assert "published hours" not in plan(Study.read("rl_depth", ["train.gradient_steps=100"])).text()

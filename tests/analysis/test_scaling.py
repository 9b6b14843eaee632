"""Depth: what is compared with what, the published values beside it, and where the time went."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis import names
from analysis.facts import Facts, gather
from analysis.report import report
from analysis.scaling import Scaling
from analysis.store import open_store
from analysis.tasks import deep, task_names

ENVS = {"humanoid": {"kind": "humanoid", "control_dt": 0.03}, "maze": {"kind": "ant-maze", "layout": "big"}}


@pytest.fixture(scope="module")
def facts(store: Any) -> Facts:
    return gather(open_store(store.uri), "deep")


def text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(style|svg).*?</\1>", "", html)).split())


def lines(scaling: Scaling) -> dict[str, list[int]]:
    return {line.label: list(line.cells) for line in scaling.lines}


def test_an_arm_over_several_depths_is_a_line(facts: Facts) -> None:
    (scaling,) = facts.scalings
    assert scaling.task == "humanoid"
    assert lines(scaling) == {"cascaded": [4, 8, 16], "drop": [4, 8, 16]}
    assert [line.baseline for line in scaling.lines] == [True, False]
    assert all(cell.cell in facts.depth_curves for line in scaling.lines for cell in line.cells.values())


def test_shallow_learned_networks_stand_beside_the_deepest_cascaded_one(facts: Facts) -> None:
    """16 blocks plain end at 300 + 5 s; of drop, 8 blocks at 500 + 5 s and 4 at 150 + 5 s: paired by seed 200, -150."""
    (scaling,) = facts.scalings
    found = {one.blocks: (one.line.label, one.gap and one.gap.mean) for one in scaling.matches}
    assert found == {8: ("drop", pytest.approx(200)), 4: ("drop", pytest.approx(-150))}


def test_tasks_are_not_compared_with_each_other(store: Any, make: SimpleNamespace, tmp_path: Path) -> None:
    """An arm for each task, depth and topology: lines are topologies, and each task has its own baseline."""
    level = {"humanoid": 100.0, "maze": 1.0}
    trials = [
        make.Trial(
            f"{env}-{blocks}-{kind}",
            seed,
            level[env] * blocks * (2 if kind == "ancre" else 1) + seed / 100,
            topology={"kind": kind} | ({"inner_residual": "drop"} if kind == "ancre" else {}),
            extra={"env": ENVS[env], "model": {"num_blocks": blocks, "width": 256}},
        )
        for env in ENVS
        for blocks in (4, 16)
        for kind in ("cascaded", "ancre")
        for seed in range(3)
    ]
    store.study("tasks", trials, metric=names.EVAL_TIME_AT_GOAL, workload="crl", tags={names.MODE: "max"})
    facts = gather(open_store(store.uri), "tasks")
    assert {one.task: lines(one) for one in facts.scalings} == {
        "humanoid": {"cascaded": [4, 16], "ancre drop": [4, 16]},
        "ant-maze big": {"cascaded": [4, 16], "ancre drop": [4, 16]},
    }
    assert {(one.cell.arm, one.base.arm) for one in facts.comparisons} == {
        (f"{env}-{blocks}-ancre", f"{env}-{blocks}-cascaded") for env in ENVS for blocks in (4, 16)
    }
    said = text(report(["tasks"], tmp_path / "r.html", store.uri).path.read_text())
    assert (
        "maze-4-ancre ends 4.00 above maze-4-cascaded in eval/time_at_goal, ant-maze big, num_blocks 4 (depth 16)"
        in said
    )
    assert "Ant-maze big: fewer blocks with learned connections against the 16 blocks" in said


def test_the_report_shows_depth_and_what_was_published(store: Any, tmp_path: Path) -> None:
    html = report(["deep"], tmp_path / "r.html", store.uri).path.read_text()
    said = text(html)
    assert "8 blocks (depth 32), drop 505.0 [492.6, 517.4] 200 [200.0, 200.0] better 4.41" in said
    assert "4 blocks (depth 16), drop 155.0 [142.6, 167.4] \N{MINUS SIGN}150" in said
    assert "16 blocks (depth 64), cascaded 305.0 [292.6, 317.4]" in said
    assert "ours, cascaded \N{EN DASH} 105.0 ± 5.0 (n = 3)" in said and "350.17 ± 44.14" in said
    assert 'id="s1-depth' in html and 'id="s1-depth-curves' in html


def test_time_is_summed_over_a_run(facts: Facts, store: Any, tmp_path: Path) -> None:
    """Six rows of 60, 240, 30 and 1 seconds for each block."""
    best = facts.winner
    assert best is not None
    assert facts.seconds[best.cell] == {
        names.TIME_ROLLOUT: 6 * 60 * 16, names.TIME_LEARN: 6 * 240 * 16,
        names.TIME_EVALUATE: 6 * 30 * 16, names.TIME_SYNC: 6 * 16,
    }  # fmt: skip
    said = text(report(["deep"], tmp_path / "r.html", store.uri).path.read_text())
    assert "drop 8.83 18.1 % 72.5 % 9.1 % 0.3 % 18000" in said  # 331 * 16 * 6 / 3600 hours


def test_language_models_have_it_too(store: Any, make: SimpleNamespace, tmp_path: Path) -> None:
    trials = [
        make.Trial(arm, seed, level - depth + seed / 10, {"model.depth": depth, "optim.lr": rate}, {"kind": arm},
                   extra={"model": {"width": 64, "depth": depth}})
        for arm, level in (("cascaded", 40.0), ("ancre", 38.0))
        for depth in (4, 8)
        for rate in (1e-3, 3e-3)
        for seed in range(2)
    ]  # fmt: skip
    store.study("llm-depth", trials, seeds=[0, 1])
    (scaling,) = gather(open_store(store.uri), "llm-depth").scalings
    assert lines(scaling) == {"cascaded": [4, 8], "ancre": [4, 8]}
    said = text(report(["llm-depth"], tmp_path / "r.html", store.uri).path.read_text())
    assert "4 blocks, ancre 34.05" in said and "against the 8 blocks" in said and "(depth" not in said


def test_one_depth_is_no_scaling(store: Any, tmp_path: Path) -> None:
    assert "<h3>Depth</h3>" not in report(["small"], tmp_path / "r.html", store.uri).path.read_text()


def test_blocks_are_shown_with_their_depth() -> None:
    assert deep("model.num_blocks", 16) == "16 (depth 64)"
    assert deep("model.num_blocks", [1, 4]) == "1 (depth 4), 4 (depth 16)"
    assert deep("model.depth", 16) == "16"
    assert task_names([{"env": ENVS["maze"], "width": 256}]) == ["ant-maze big"]
    assert task_names([{"width": 64}]) == [""]

"""A metric that is to be large: ranking, steps saved, curves and the words of a report all turn around."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis import names, queries
from analysis.facts import gather
from analysis.report import report
from analysis.store import open_store

LEVEL = {"cascaded": 100.0, "drop": 300.0, "keep": 40.0}


@pytest.fixture(scope="module")
def tall(store: Any, make: SimpleNamespace) -> Any:
    """Three arms of three seeds; a fourth diverged after it had led."""
    trials = [
        make.Trial(arm, seed, value + seed, topology={"kind": "cascaded" if arm == "cascaded" else "ancre"})
        for arm, value in LEVEL.items()
        for seed in range(3)
    ]
    trials += [
        make.Trial("lost", seed, 900.0, state=names.DIVERGED, cause="train/critic_loss is not finite")
        for seed in range(3)
    ]
    for mode in ("max", "min"):
        store.study(
            f"tall-{mode}",
            trials,
            metric=names.EVAL_TIME_AT_GOAL,
            tags={names.MODE: mode},
            curve=lambda trial, share: trial.value * share,
        )
    return store


@pytest.mark.parametrize(
    ("mode", "order"), [("max", ["drop", "cascaded", "keep"]), ("min", ["keep", "cascaded", "drop"])]
)
def test_diverged_ranks_last_in_both(tall: Any, mode: str, order: list[str]) -> None:
    assert [cell.arm for cell in queries.cells(f"tall-{mode}", tracking_uri=tall.uri)] == [*order, "lost"]
    asked = queries.cells("tall-max", mode=mode, tracking_uri=tall.uri)
    assert [cell.arm for cell in asked] == [*order, "lost"]


def test_another_metric_is_ranked_by_its_own_end(store: Any, make: SimpleNamespace) -> None:
    """The study ranks by perplexity, smaller first; asked for the time at goal, larger comes first."""
    more = [(names.EVAL_TIME_AT_GOAL, 5.0), (names.EVAL_TIME_AT_GOAL, 7.0)]
    store.study("both", [make.Trial(f"a{k}", 0, 1.0 + k, more=dict([one])) for k, one in enumerate(more)], seeds=[0])
    ranked = {
        metric: [cell.arm for cell in queries.cells("both", metric, tracking_uri=store.uri)]
        for metric in (None, names.EVAL_TIME_AT_GOAL)
    }
    assert ranked == {None: ["a0", "a1"], names.EVAL_TIME_AT_GOAL: ["a1", "a0"]}


def test_steps_saved_are_counted_upwards(tall: Any) -> None:
    """Curves rise linearly to their last value in 100 steps: drop passes cascaded's 101 at step 100 * 101 / 301."""
    steps = gather(open_store(tall.uri), "tall-max").steps
    assert steps["drop"].mean.step == pytest.approx(100 * 101 / 301)
    assert steps["keep"].mean.step is None


@pytest.mark.parametrize(
    ("mode", "verdict", "card"),
    [
        ("max", "drop ends 200 above cascaded in eval/time_at_goal", "good"),
        ("min", "keep ends 60.0 below cascaded in eval/time_at_goal", "good"),
    ],
)
def test_the_report_says_which_is_better(tall: Any, tmp_path: Path, mode: str, verdict: str, card: str) -> None:
    html = report([f"tall-{mode}"], tmp_path / "r.html", tall.uri).path.read_text()
    assert verdict in html and ": better, and clear of zero." in html
    assert f'class="card {card}"' in html and f"ranked by eval/time_at_goal ({mode})" in html


def test_a_gain_in_the_wrong_direction_is_bad(store: Any, make: SimpleNamespace, tmp_path: Path) -> None:
    trials = [
        make.Trial(arm, seed, value + seed / 10, topology={"kind": arm})
        for arm, value in (("cascaded", 100.0), ("ancre", 90.0))
        for seed in range(3)
    ]
    store.study("worse", trials, metric=names.EVAL_TIME_AT_GOAL, tags={names.MODE: "max"})
    html = report(["worse"], tmp_path / "r.html", store.uri).path.read_text()
    assert "ancre ends 10.0 below cascaded" in html and ": worse, and clear of zero." in html
    assert 'class="card bad"' in html

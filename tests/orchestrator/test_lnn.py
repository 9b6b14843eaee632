"""The rates of the case study (paper, section 3): topology alone makes the loss fall as a power or exponentially.

Losses are compared with those of appendix E.1's setting, step size 1e-3, at 2,500, 7,500, .. steps. So small a step
follows gradient flow; most runs here take a quarter of the steps at four times the size, the same t = rate x steps.
Bands are for seeds 0 and 1, with room for others.
"""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.errors import Diverged
from orchestrator.workloads.base import Place, Row
from orchestrator.workloads.lnn import Spec


def run(folder: Path, **tables: Any) -> list[Row]:
    return list(Spec.model_validate(tables).rows(Place(folder / "trial", folder / "cache")))


def losses(
    folder: Path, depth: int, topology: dict[str, Any], seed: int, until: int, faster: int = 4
) -> dict[int, float]:
    """Train loss by the number of steps that it takes at rate 1e-3."""
    rows = run(
        folder,
        model={"depth": depth},
        topology=topology,
        optim={"kind": "sgd", "lr": 1e-3 * faster},
        train={"steps": until // faster, "log_every": 2_500 // faster},
        seed=seed,
    )
    return {row.step * faster: row.metrics["train/loss"] for row in rows}


def shortcuts(text: str) -> dict[str, Any]:
    return {"kind": "shortcuts", "shortcuts": text}


def ancre(temperature: float, normalization: str = "ingoing") -> dict[str, Any]:
    return {"kind": "ancre", "temperature": temperature, "normalization": normalization, "inner_residual": "drop"}


@pytest.mark.parametrize(
    ("text", "seed", "until"), [("0:1", 0, 20_000), ("0:1", 1, 20_000), ("1:2", 0, 10_000), ("2:3", 0, 10_000)]
)
def test_three_layers_one_short_connection_is_sublinear(tmp_path: Path, text: str, seed: int, until: int) -> None:
    loss = losses(tmp_path, 3, shortcuts(text), seed, until)
    assert loss[2_500] == pytest.approx(4.7e-4, rel=0.25)
    assert loss[2_500] / 2 < loss[until] < loss[2_500]
    if until == 20_000:
        assert loss[until] == pytest.approx(2.6e-4, rel=0.25)


@pytest.mark.parametrize(("text", "seed", "faster"), [("0:2", 0, 1), ("0:2", 1, 4), ("1:3", 0, 4)])
def test_three_layers_one_long_connection_is_linear(tmp_path: Path, text: str, seed: int, faster: int) -> None:
    loss = losses(tmp_path, 3, shortcuts(text), seed, 7_500 if faster == 1 else 17_500, faster)
    assert loss[2_500] == pytest.approx(7e-4, rel=0.25)
    assert loss[7_500] == pytest.approx(3.2e-8, rel=0.25)
    if faster > 1:
        assert loss[17_500] < 1e-14
        for step in (7_500, 12_500):  # e^-2t with t = 5
            assert math.log(loss[step] / loss[step + 5_000]) == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize(("text", "seed"), [("0:3", 0), ("0:2+2:3", 1)])
def test_four_layers_linear(tmp_path: Path, text: str, seed: int) -> None:
    loss = losses(tmp_path, 4, shortcuts(text), seed, 10_000)
    assert loss[7_500] < 1e-5
    assert math.log(loss[7_500] / loss[10_000]) > 4


def test_four_layers_cascaded_is_sublinear(tmp_path: Path) -> None:
    loss = losses(tmp_path, 4, {"kind": "cascaded"}, 0, 20_000)
    assert loss[2_500] == pytest.approx(0.55, rel=0.1)
    assert loss[20_000] == pytest.approx(0.036, rel=0.1)
    assert loss[10_000] / loss[20_000] < 4  # falls no faster than 1 / t^2


@pytest.mark.parametrize(
    ("depth", "normalization", "seed", "faster"),
    [(3, "ingoing", 0, 1), (3, "outgoing", 1, 4), (4, "ingoing", 1, 4)],
)
def test_ancre_is_linear(tmp_path: Path, depth: int, normalization: str, seed: int, faster: int) -> None:
    loss = losses(tmp_path, depth, ancre(1.0, normalization), seed, 7_500, faster)
    assert 0.1 < loss[2_500] < 0.5
    assert 5e-6 < loss[7_500] < 2e-4


def test_ancre_stays_linear(tmp_path: Path) -> None:
    loss = losses(tmp_path, 3, ancre(1.0), 1, 17_500)
    for step, expected in {2_500: 3e-1, 7_500: 8e-5, 12_500: 3.5e-7, 17_500: 3.8e-9}.items():
        assert expected / 2.5 < loss[step] < expected * 2.5


def test_ancre_learns_the_connections_of_figure_3d(tmp_path: Path) -> None:
    rows = run(tmp_path, topology=ancre(1.0), optim={"kind": "sgd", "lr": 4e-3}, train={"steps": 1_000})
    assert rows[-1].topology is not None
    p = rows[-1].topology["linear"]["p"]
    assert p[0][3] < 0.1 < p[2][3] < 0.4 < 0.5 < p[1][3]  # into step 3: 0:3 and 2:3 are suppressed, 1:3 is not


def test_a_tenth_of_the_temperature_is_sublinear_at_this_step_size(tmp_path: Path) -> None:
    loss = losses(tmp_path, 3, ancre(0.1), 0, 10_000)
    assert loss[7_500] == pytest.approx(0.122, rel=0.1)
    assert loss[5_000] / loss[10_000] < 4  # falls no faster than 1 / t^2


def test_rows_and_snapshots_come_at_their_steps_and_at_the_last(tmp_path: Path) -> None:
    model = {"width": 4, "rank": 1}
    rows = run(tmp_path, model=model, topology=ancre(1.0), train={"steps": 95, "log_every": 10})
    assert [row.step for row in rows] == [*range(0, 100, 10), 95]
    assert [row.step for row in rows if row.topology] == [0, 20, 40, 60, 80, 95]
    assert all(set(row.metrics) == {"train/loss"} for row in rows)
    assert all(one.time <= other.time for one, other in pairwise(rows))


def test_the_loss_at_step_0_is_that_of_the_untrained_network(tmp_path: Path) -> None:
    """With shortcut 0:3 and W near 0 the network is the identity, so the loss is that of I against A."""
    from models.linear import low_rank_target  # torch

    (first, _) = run(tmp_path, topology={"kind": "shortcuts", "shortcuts": "0:3"}, train={"steps": 1}, seed=7)
    difference = low_rank_target(50, 4, seed=7)
    difference.diagonal().sub_(1.0)
    assert first.metrics["train/loss"] == pytest.approx(0.5 * difference.square().sum().item(), rel=1e-3)


def test_a_rate_that_is_too_high_diverges_at_a_named_step(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"train/loss is not finite at step \d+") as caught:
        run(tmp_path, topology={"kind": "cascaded"}, optim={"kind": "sgd", "lr": 1.0}, train={"steps": 1000})
    assert 0 < caught.value.step < 50


def test_a_killed_run_resumes_with_its_momentum(tmp_path: Path) -> None:
    spec = Spec.model_validate(
        {
            "model": {"width": 6, "rank": 2},
            "topology": ancre(0.5),
            "optim": {"kind": "sgd", "lr": 1e-2, "momentum": 0.9},
            "train": {"steps": 40, "log_every": 5, "checkpoint_every": 15},
        }
    )
    straight = {row.step: row.metrics for row in spec.rows(Place(tmp_path / "straight", tmp_path))}
    running = spec.rows(Place(tmp_path / "killed", tmp_path))
    assert [next(running).step for _ in range(6)] == [0, 5, 10, 15, 20, 25]
    running.close()
    resumed = {row.step: row.metrics for row in spec.rows(Place(tmp_path / "killed", tmp_path))}
    assert resumed == {step: metrics for step, metrics in straight.items() if step >= 15}


def test_without_checkpoints_nothing_is_left_on_disk(tmp_path: Path) -> None:
    rows = run(tmp_path, model={"width": 4, "rank": 1}, train={"steps": 3})
    assert all(set(row.metrics) == set(Spec.metrics) for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_estimate_counts_the_network_and_the_topology() -> None:
    spec = Spec.model_validate({"topology": ancre(1.0), "train": {"steps": 100, "checkpoint_every": 10}})
    estimate = spec.estimate()
    assert (estimate.params, estimate.topology_params) == (3 * 50 * 50, 6)
    assert estimate.flops == pytest.approx(100 * 3 * 3 * 2 * 50**3)
    assert estimate.disk == 2 * 8 * (7500 + 6)
    assert estimate.memory == 8 * (2 * (7500 + 6) + 2 * 4 * 2500)


@pytest.mark.parametrize(
    ("tables", "where", "what"),
    [
        ({"model": {"depth": 0}}, ("model", "depth"), "greater than or equal to 1"),
        ({"model": {"rank": 51}}, ("model",), "rank = 51: a target of width 50 has rank 50 at most"),
        ({"topology": {"kind": "shortcuts", "shortcuts": "0:4"}}, ("topology",), "0:4"),
        ({"topology": {"kind": "cascade"}}, ("topology",), "did you mean 'cascaded'?"),
        ({"optim": {"kind": "galore", "lr": 0.1}}, ("optim",), "no matrix to project: rank 128 should be below"),
        ({"train": {"steps": 0}}, ("train", "steps"), "greater than or equal to 1"),
        ({"seed": -1}, ("seed",), "greater than or equal to 0"),
    ],
)
def test_bad_input_is_refused_where_it_stands(tables: dict[str, Any], where: tuple[str, ...], what: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Spec.model_validate(tables)
    (fault,) = caught.value.errors()
    assert fault["loc"] == where
    assert what in fault["msg"]

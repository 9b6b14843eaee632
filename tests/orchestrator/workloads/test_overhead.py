"""The workload overhead: what a row holds, that it counts what is there, and what it refuses. Nothing about speed."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from analysis import names
from orchestrator.pretrain.overhead import Measurement
from orchestrator.workloads.base import Place, Row
from orchestrator.workloads.overhead import Spec

SMALL: dict[str, Any] = {
    "model": {"width": 32, "ffn_width": 64, "depth": 3, "heads": 2, "vocab_size": 40},
    "topology": {"kind": "hyper-connections"},
    "train": {"sequence": 16, "batch": 4, "rounds": 5, "log_every": 2},
}


def small(**sections: Any) -> Spec:
    tables = {name: {**SMALL.get(name, {}), **held} for name, held in sections.items()}
    return Spec.model_validate(SMALL | tables)


def rows(spec: Spec, folder: Path) -> list[Row]:
    return [*spec.rows(Place(folder, folder))]


def test_rows_come_in_rounds_and_say_all_that_a_cpu_knows(tmp_path: Path) -> None:
    found = rows(small(), tmp_path)
    assert [row.step for row in found] == [2, 4, 5]
    absent = {names.MFU, names.MEMORY_PEAK, names.CASCADED_PEAK}  # an accelerator tells these
    assert all(set(row.metrics) == set(Spec.metrics) - absent for row in found)


def test_a_row_is_of_both_networks(tmp_path: Path) -> None:
    spec = small()
    metrics = rows(spec, tmp_path)[-1].metrics
    assert metrics[names.SLOWDOWN_LOW] <= metrics[names.SLOWDOWN] <= metrics[names.SLOWDOWN_HIGH]
    assert metrics[names.OVERHEAD_PARAMETERS] == spec.estimate().topology_params
    assert metrics[names.MEMORY_PARAMETERS] == 4 * (spec.model.num_params() + spec.estimate().topology_params)
    assert metrics[names.MEMORY_GRADIENTS] == metrics[names.MEMORY_PARAMETERS]
    assert metrics[names.MEMORY_ACTIVATIONS] > 1.3 * metrics[names.CASCADED_ACTIVATIONS]
    ours = rows(small(topology={"kind": "cascaded"}), tmp_path)[-1].metrics
    assert ours[names.OVERHEAD_PARAMETERS] == 0
    assert ours[names.MEMORY_ACTIVATIONS] == ours[names.CASCADED_ACTIVATIONS] == metrics[names.CASCADED_ACTIVATIONS]


def test_the_slowdown_is_the_median_of_ratios_of_the_same_round() -> None:
    """Ratios 2, 1/2, 3, 1 and 4 of rounds whose own speeds differ by orders of magnitude."""
    made = Measurement(small())
    for side in (made.own, made.base):
        side.look(made._windows(small().train))
    made.base.seconds = [1.0, 10.0, 100.0, 0.1, 0.01]
    made.own.seconds = [2.0, 5.0, 300.0, 0.1, 0.04]
    metrics = made._row(5).metrics
    found = [metrics[name] for name in (names.SLOWDOWN_LOW, names.SLOWDOWN, names.SLOWDOWN_HIGH)]
    assert found == pytest.approx([1.0, 2.0, 3.0])
    assert metrics[names.TOKENS_PER_S] == pytest.approx(4 * 16 / 2.0)
    assert metrics[names.CASCADED_TOKENS_PER_S] == pytest.approx(4 * 16 / 1.0)


def test_each_round_is_one_step_of_each_on_the_same_tokens_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small(train={"rounds": 12, "warmup": 3})
    made, steps = Measurement(spec), []
    for side in (made.own, made.base):
        monkeypatch.setattr(side, "step", lambda windows, other, side=side: steps.append((side, windows)) or 1.0)
        side.loss = 1.0
        monkeypatch.setattr(
            side, "look", lambda windows, side=side: side.memory.update(dict.fromkeys(names.MEMORY, 0.0))
        )
    assert [row.step for row in made.rows()] == [2, 4, 6, 8, 10, 12]
    assert len(steps) == 2 * (12 + 3 - 1)  # the first round to warm up is the look into memory
    pairs = [*zip(steps[::2], steps[1::2], strict=True)]
    assert all(a is not b and one is other for (a, one), (b, other) in pairs)
    first = [side is made.own for (side, _), _ in pairs]
    assert 3 < sum(first) < 11
    assert len(made.own.seconds) == len(made.base.seconds) == 12


def test_the_baseline_of_other_granularity_connects_blocks() -> None:
    made = Measurement(small(model={"granularity": "both"}, topology={"kind": "ancre"}))
    assert set(made.own.network.topologies()) == {"decoder", "ffn"}
    assert {name: one.kind for name, one in made.base.network.topologies().items()} == {"decoder": "cascaded"}
    assert made.spec.estimate().topology_params == 12


def test_the_estimate_has_both_networks_and_one_step() -> None:
    spec, plain = small(), small(topology={"kind": "cascaded"})
    one = plain.memory(plain.model, plain.topology)
    kept = one[names.MEMORY_PARAMETERS] + one[names.MEMORY_OPTIMIZER]
    assert plain.estimate().memory == sum(one.values()) + kept + 4 * 4 * 16 * 40  # and the logits
    assert spec.estimate().memory > plain.estimate().memory
    assert plain.estimate().flops == 2 * (5 + 3) * 4 * 16 * plain.model.flops_per_token(16)
    assert plain.estimate().disk == 0


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("train", {"rounds": 1}, "train.rounds: Input should be greater than or equal to 2"),
        ("train", {"warmup": 0}, "train.warmup: Input should be greater than or equal to 1"),
        ("train", {"precision": "bf16-stochastic"}, "train.precision: Input should be 'fp32', 'bf16-mixed' or"),
        ("train", {"steps": 3}, "train.steps: Extra inputs are not permitted"),
        ("topology", {"kind": "shortcuts", "shortcuts": "0:4"}, "shortcut 0:4 ends beyond the last of 3 blocks"),
        ("optim", {"kind": "galore", "lr": 1e-2}, "an optimizer with no matrix to project: rank 128"),
    ],
)
def test_a_wrong_trial_is_refused_in_one_line(section: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Spec.model_validate(SMALL | {section: values})
    (error,) = caught.value.errors()
    assert message in f"{'.'.join(map(str, error['loc']))}: {error['msg']}"


def test_it_runs_on_one_worker() -> None:
    with pytest.raises(ValueError, match=r"^overhead is measured on one worker, got 2$"):
        small().check_workers(2)

"""The published depths: as printed, found by the configuration that they are of, hours linear in depth and steps."""

from typing import Any

import pytest

from analysis import names, published_depths
from models.resnet_spec import LAYERS_PER_BLOCK

TRAIN = {"num_envs": 512, "unroll": 62, "gradient_steps": 800, "batch": 512}
STEPS = 98_946_048


def spec(blocks: int, env: dict[str, Any], **model: Any) -> dict[str, Any]:
    sizes = {"num_blocks": blocks, "width": 256, "activation": "swish", "layer_norm": True}
    return {"env": env, "model": sizes | model, "topology": {"kind": "cascaded"}, "train": TRAIN}


HUMANOID = {"kind": "humanoid", "control_dt": 0.03}
BIG = {"kind": "ant-maze", "layout": "big"}


def test_a_block_has_as_many_layers_as_the_network() -> None:
    assert published_depths.LAYERS_PER_BLOCK == LAYERS_PER_BLOCK
    assert published_depths.depth_of(spec(16, HUMANOID)) == 64
    assert published_depths.depth_of({"model": {"depth": 8}}) is None


def test_every_row_is_of_a_known_metric_and_has_a_source() -> None:
    for row in published_depths.rows():
        assert row.metric == names.EVAL_TIME_AT_GOAL and "2503.14858" in row.source
        assert all(0 <= value.mean <= 1000 for value in row.values.values())


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (spec(4, HUMANOID), {"12.6 ± 1.3", "13.43 ± 4.4"}),
        (spec(4, HUMANOID, layer_norm=False), {"6.58"}),
        (spec(4, HUMANOID, activation="relu"), {"15.09"}),
        (spec(4, HUMANOID, activation="relu", layer_norm=False), set()),
        (spec(4, {"kind": "humanoid", "control_dt": 0.015}), set()),
        (spec(4, BIG), {"61 ± 20"}),
        (spec(4, {"kind": "ant-maze", "layout": "u"}), set()),
        (spec(4, HUMANOID) | {"topology": {"kind": "ancre"}}, set()),
    ],
)
def test_rows_stand_beside_what_they_are_of(said: dict[str, Any], found: set[str]) -> None:
    assert {str(row.values[4]) for row in published_depths.rows() if row.matches(said)} == found


@pytest.mark.parametrize(
    ("blocks", "env", "steps", "hours", "inside"),
    [
        (1, HUMANOID, STEPS, 1.48, True),
        (16, BIG, STEPS, 11.66, True),
        (4, BIG, STEPS // 2, 2.02, True),
        (12, HUMANOID, STEPS, (5.92 + 10.99) / 2, True),  # depth 48
        (32, HUMANOID, STEPS, 10.99 + 2 * (10.99 - 5.92), False),  # depth 128
    ],
)
def test_hours_are_linear(blocks: int, env: dict[str, Any], steps: int, hours: float, inside: bool) -> None:
    found = published_depths.hours(spec(blocks, env), steps)
    assert found is not None and found.inside == inside
    assert found.hours == pytest.approx(hours)


@pytest.mark.parametrize(
    "said",
    [
        spec(4, {"kind": "point", "layout": "u"}),
        spec(4, HUMANOID, width=512),
        spec(4, HUMANOID) | {"train": TRAIN | {"batch": 256}},
        {"model": {"depth": 4}},
    ],
)
def test_no_hours_where_none_were_published(said: dict[str, Any]) -> None:
    assert published_depths.hours(said, STEPS) is None

"""Precision and recall on sets where they can be counted."""

import numpy as np
import pytest

from orchestrator.errors import InputError
from orchestrator.image_metrics import neighbours
from orchestrator.image_metrics.neighbours import precision_recall, radii

LINE = np.arange(10.0)[:, None]  # ten features, one apart


def test_radius_is_the_distance_to_the_kth_other_one() -> None:
    assert radii(LINE, 3).tolist() == [9, 4, 4, 4, 4, 4, 4, 4, 4, 9]  # squared: ends look one way only
    assert radii(np.zeros((5, 2)), 3).tolist() == [0] * 5  # doubles are neighbours


def test_a_set_covers_itself_and_nothing_far_away() -> None:
    assert precision_recall(LINE, LINE) == (1.0, 1.0)
    assert precision_recall(LINE, LINE + 100) == (0.0, 0.0)


def test_by_hand_on_a_line() -> None:
    """k = 1: real balls reach 1, so they cover [-1, 10]; the made ones at 9, 11, 13, 15 reach 2 and cover [7, 17]."""
    made = np.array([9.0, 11, 13, 15])[:, None]
    assert precision_recall(LINE, made, k=1) == (0.25, 0.3)


def test_one_mode_is_precise_and_recalls_half() -> None:
    random = np.random.default_rng(0)
    modes = random.normal(size=(2, 200, 8))
    modes[1] += 50
    precision, recall = precision_recall(modes.reshape(-1, 8), random.normal(size=(200, 8)))
    assert precision > 0.8
    assert 0.4 < recall <= 0.5


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = np.random.default_rng(0).normal(size=(2, 50, 3)).astype(np.float32)
    whole = precision_recall(real, made)
    monkeypatch.setattr(neighbours, "ROWS", 7)
    assert precision_recall(real, made) == whole


def test_too_few_are_refused() -> None:
    with pytest.raises(InputError, match=r"^precision and recall: 3 generated images have no neighbour number 3$"):
        precision_recall(LINE, LINE[:3])

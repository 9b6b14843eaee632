"""The Inception Score on sets whose score is known."""

import numpy as np
import pytest

from orchestrator.errors import InputError
from orchestrator.image_metrics.inception import ClassSums, inception_score


def test_sure_and_even_scores_the_number_of_classes() -> None:
    assert inception_score(np.tile(np.eye(7) * 1e3, (5, 1)))[0] == pytest.approx(7, rel=1e-12)


def test_one_class_scores_one_and_so_do_unsure_images() -> None:
    assert inception_score(np.tile([1e3, 0.0, 0.0], (9, 1)))[0] == pytest.approx(1)
    assert inception_score(np.zeros((9, 3)))[0] == pytest.approx(1)


def test_two_images_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.3, 0.7]])
    by_hand = np.exp((p * np.log(p / p.mean(0))).sum(1).mean())
    assert inception_score(np.log(p) + 5)[0] == pytest.approx(by_hand, rel=1e-12)  # logits are up to a constant


def test_splits_are_scored_apart() -> None:
    """A first split of one class and a second of four: 1 and 4."""
    logits = np.concatenate([np.tile(np.eye(4)[0], (8, 1)), np.tile(np.eye(4), (2, 1))]) * 1e3
    assert inception_score(logits, split=8) == (pytest.approx(2.5), pytest.approx(1.5))


def test_workers_and_batches_give_the_score_of_all() -> None:
    random = np.random.default_rng(0)
    logits, numbers = random.normal(size=(100, 6)), random.permutation(100)
    whole = inception_score(logits, split=30)
    some, rest = (ClassSums.of(logits[part], part, split=30) for part in (numbers[:41], numbers[41:]))
    assert rest.merge(some).score() == pytest.approx(whole, rel=1e-12)


def test_a_split_of_one_image_is_refused() -> None:
    with pytest.raises(InputError, match="7 images leave 1 in a split; give at least 2 to each"):
        inception_score(np.zeros((7, 3)), split=6)
    with pytest.raises(InputError, match="0 images"):
        inception_score(np.zeros((0, 3)))

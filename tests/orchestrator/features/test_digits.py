"""The classifier of digits: trained the same way each time, right on digits that it has not seen."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from orchestrator.errors import InputError
from orchestrator.features.digits import Classifier, Spec
from orchestrator.images.digits import Spec as Digits


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def classifier(cache: Path) -> Classifier:
    network = Spec().open(cache)
    assert isinstance(network, Classifier)
    return network


def test_it_knows_digits_that_it_has_not_seen(classifier: Classifier, cache: Path) -> None:
    held_out = Digits().open(cache).held_out
    assert len(held_out) == 359
    assert classifier.accuracy(held_out) >= 0.97


def test_noise_is_no_digit(classifier: Classifier, cache: Path) -> None:
    """So that it can fail: the classes of shuffled pixels are guesses."""
    x, y = Digits().open(cache).held_out.read(np.arange(359))
    shuffled = np.random.default_rng(0).permuted(x.reshape(359, -1), axis=1).reshape(x.shape)
    assert (classifier.features(shuffled).logits.argmax(1) == y).mean() < 0.4


def test_the_same_seed_gives_the_same_network(classifier: Classifier, cache: Path, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    assert Spec().open(tmp_path).hash == classifier.hash
    assert torch.equal(torch.random.get_rng_state(), before)


def test_it_is_trained_once(classifier: Classifier, cache: Path) -> None:
    (file,) = (cache / "features").iterdir()
    written = file.stat().st_mtime_ns
    assert Spec().open(cache).hash == classifier.hash
    assert file.stat().st_mtime_ns == written


def flip(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]


@pytest.mark.parametrize("damage", [flip, lambda content: content[:-1], lambda content: b"", lambda content: b"x" * 99])
def test_a_damaged_file_is_trained_anew(
    damage: Callable[[bytes], bytes],
    classifier: Classifier,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (file,) = (cache / "features").iterdir()
    whole = file.read_bytes()
    monkeypatch.setattr("orchestrator.features.digits._trained", lambda seed, images: whole[32:])
    damaged = tmp_path / "features" / file.name
    damaged.parent.mkdir()
    damaged.write_bytes(damage(whole))
    assert Spec().open(tmp_path).hash == classifier.hash
    assert damaged.read_bytes() == whole


def test_features_do_not_depend_on_the_batch(classifier: Classifier, cache: Path) -> None:
    x, _ = Digits().open(cache).held_out.read(np.arange(20))
    together, apart = classifier.features(x), [classifier.features(one[None]) for one in x]
    assert together.pool.shape == (20, 64) and together.spatial.shape == (20, 256) and together.logits.shape == (20, 10)
    for name in together._fields:
        parts = np.concatenate([getattr(one, name) for one in apart])
        np.testing.assert_allclose(getattr(together, name), parts, atol=1e-5)


def test_other_shapes_are_refused(classifier: Classifier) -> None:
    with pytest.raises(InputError, match="it takes images of 1 x 8 x 8, not 3 x 32 x 32"):
        classifier.features(np.zeros((2, 3, 32, 32), np.float32))

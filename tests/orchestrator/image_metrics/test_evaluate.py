"""The metrics of real digits, and statistics in files."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from orchestrator.errors import InputError
from orchestrator.features.base import Features, Network
from orchestrator.image_metrics.evaluate import comparable, compare, gather, reference
from orchestrator.image_metrics.statistics import Statistics
from orchestrator.images.base import Numbers, Subset
from orchestrator.images.digits import Digits


class Projection(Network):
    """Fixed random features of digits."""

    name = "a projection"

    def __init__(self, seed: int = 0) -> None:
        self.hash = f"{seed}" * 64
        self.weights = np.random.default_rng(seed).normal(size=(64, 12))
        self.calls = 0

    def features(self, x: NDArray[np.float32]) -> Features:
        self.calls += 1
        features = x.reshape(len(x), -1) @ self.weights / 8
        return Features(features, x.reshape(len(x), -1)[:, 20:40], features[:, :10])


def _made(noise: float) -> Callable[[Numbers], NDArray[np.float32]]:
    """Digits of even numbers with noise."""
    digits, random = Digits(), np.random.default_rng(0)
    x = digits.x + noise * random.normal(size=digits.x.shape).astype(np.float32)
    return lambda numbers: x[2 * numbers]


def test_more_noise_is_further_away(tmp_path: Path) -> None:
    network = Projection()
    real = reference(network, Digits(), "digits", tmp_path)
    few, many = (compare(real, gather(network, _made(noise), np.arange(300))) for noise in (0.1, 0.6))
    assert few["fid"] < many["fid"] and few["sfid"] < many["sfid"] and few["kid"] < many["kid"]
    assert few["precision"] > many["precision"]
    assert few["images"] == 300


def test_real_halves_are_one_distribution(tmp_path: Path) -> None:
    network = Projection()
    odd = Subset(Digits(), np.arange(1, 1797, 2))
    real = reference(network, odd, "odd digits", tmp_path)
    row, noisy = (compare(real, gather(network, _made(noise), np.arange(898))) for noise in (0, 0.6))
    assert row["precision"] > 0.8 and row["recall"] > 0.8
    assert abs(row["kid"]) < 0.1 * noisy["kid"]


def test_workers_give_what_one_gives() -> None:
    network = Projection()
    whole = gather(network, _made(0.1), np.arange(700), keep=300, split=200)
    shares = [gather(network, _made(0.1), np.arange(rank, 700, 3), keep=300, split=200) for rank in (2, 0, 1)]
    merged = Statistics.merged(shares)
    assert np.array_equal(merged.features, whole.features) and len(whole.features) == 300
    real = gather(network, _made(0), np.arange(300))
    assert compare(real, merged) == pytest.approx(compare(real, whole), rel=1e-9)


def test_reference_is_gathered_once_for_a_network(tmp_path: Path) -> None:
    network, other = Projection(), Projection(1)
    some = Subset(Digits(), np.arange(200))
    first = reference(network, some, "digits", tmp_path)
    calls = network.calls
    again = reference(network, some, "digits", tmp_path)
    assert network.calls == calls
    assert compare(first, again) == compare(first, first)
    reference(other, some, "digits", tmp_path)
    assert other.calls == calls


def test_statistics_of_another_network_are_refused(tmp_path: Path) -> None:
    one, other = (gather(Projection(seed), _made(0), np.arange(10)) for seed in (0, 1))
    one.write(tmp_path / "one.npz")
    with pytest.raises(InputError, match=r"one\.npz: of the feature network 0{12}, not "):
        Statistics.read(tmp_path / "one.npz", "f" * 64)
    with pytest.raises(InputError, match="numbers of two networks cannot be compared"):
        compare(one, other)
    with pytest.raises(InputError, match="numbers of two networks cannot be compared"):
        Statistics.merged([one, other])


def npy() -> bytes:
    content = io.BytesIO()
    np.save(content, np.zeros(3))
    return content.getvalue()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"text", npy()])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"file\.npz: no statistics of images"):
        Statistics.read(tmp_path / "file.npz", "f" * 64)


def test_too_few_images_are_one_line(tmp_path: Path) -> None:
    network = Projection()
    real = reference(network, Digits(), "digits", tmp_path)
    with pytest.raises(InputError, match="3 generated images have no neighbour number 3"):
        compare(real, gather(network, _made(0), np.arange(3)))
    with pytest.raises(InputError, match="no images"):
        gather(network, _made(0), np.arange(0))


def test_comparable_with_published_numbers_needs_their_network_and_count() -> None:
    statistics = gather(Projection(), _made(0), np.arange(10))
    assert not comparable(Projection(), statistics)
    network = Projection()
    network.published = True
    assert not comparable(network, statistics)
    statistics.pool.count = 50_000
    assert comparable(network, statistics)

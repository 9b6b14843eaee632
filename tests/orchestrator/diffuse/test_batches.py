"""What is drawn for an image follows from the seed and its place alone, and is distributed as it must be."""

import numpy as np
import pytest
import torch

from orchestrator.diffuse.batches import Batches, held_out
from orchestrator.image_shards.stream import Stream
from orchestrator.images.digits import Spec as Digits


@pytest.fixture(scope="module")
def split(cache):
    return Digits().open(cache)


def whole(split, step: int, workers: int, seed: int = 3, dropout: float = 0.5) -> list[torch.Tensor]:
    """A step's batch of 7, put together from what each worker has of it."""
    parts = [Batches(Stream(split.train, seed), 7, dropout, rank, workers).at(step) for rank in range(workers)]
    return [torch.cat(tensors) for tensors in zip(*parts, strict=True)]


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_a_batch_does_not_depend_on_who_shares_it(split, workers):
    for alone, shared in zip(whole(split, 5, 1), whole(split, 5, workers), strict=True):
        assert torch.equal(alone, shared)


def test_other_steps_and_seeds_draw_otherwise(split):
    noise = [whole(split, step, 1, seed)[3] for step, seed in ((5, 3), (6, 3), (5, 4))]
    assert not any(torch.equal(noise[i], noise[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_places_of_a_step_are_places_of_the_stream(split):
    """Step 5 of batch 7 has the images at places 35 .. 41, so step 35 of batch 1 begins with the same."""
    (x, t, y, noise), single = whole(split, 5, 1), Batches(Stream(split.train, 3), 1, 0.5, 0, 1).at(35)
    for of_seven, alone in zip((x, t, y, noise), single, strict=True):
        assert torch.equal(of_seven[:1], alone)


def test_timesteps_are_uniform_noise_is_normal_and_classes_are_dropped_at_their_rate(split):
    x, t, y, noise = Batches(Stream(split.train, 0), 4000, 0.1, 0, 1).at(0)
    assert x.shape == noise.shape == (4000, 1, 8, 8)
    assert t.min() < 10 and t.max() > 989
    assert abs(t.double().mean() - 499.5) < 4 * 288.7 / 4000**0.5
    assert abs(noise.mean()) < 4 / noise.numel() ** 0.5 and abs(noise.var() - 1) < 4 * (2 / noise.numel()) ** 0.5
    assert abs((y == 10).double().mean() - 0.1) < 4 * (0.09 / 4000) ** 0.5
    told = y < 10
    _, labels = split.train.read(Stream(split.train, 0).numbers(0, 4000))
    assert torch.equal(y[told], torch.from_numpy(labels)[told])


def test_micro_batches_are_the_batch(split):
    batch = Batches(Stream(split.train, 0), 7, 0.1, 0, 1).at(0)
    parts = batch.split(3)
    assert [len(part.x) for part in parts] == [3, 3, 1]
    for k, tensor in enumerate(batch):
        assert torch.equal(torch.cat([part[k] for part in parts]), tensor)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_held_out_images_are_each_there_once_with_the_same_draws(split, workers):
    found = [batch for rank in range(workers) for batch in held_out(split.held_out, 30, 4, rank, workers)]
    assert sum(len(batch.x) for batch in found) == 30
    noise = torch.cat([batch.noise for batch in found]).flatten(1)
    (alone,) = held_out(split.held_out, 30, 30, 0, 1)
    assert {tuple(row.tolist()) for row in noise} == {tuple(row.tolist()) for row in alone.noise.flatten(1)}
    assert np.array_equal(alone.y.numpy(), split.held_out.read(np.arange(30)).y)  # no class is dropped

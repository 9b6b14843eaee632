"""The loader: every worker reads its own rows of the stream, from any step, one step ahead."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_files import corpus

from orchestrator.errors import InputError
from orchestrator.pretrain.loader import Loader
from orchestrator.pretrain.sequences import PAD, Stream

TEXT = corpus(*range(1, 30), shards=3, block=40)


def stream(packing="concat") -> Stream:
    return Stream(TEXT, 8, packing, seed=2)


@settings(max_examples=25)
@given(st.integers(1, 9), st.integers(1, 20), st.integers(0, 40), st.sampled_from(["concat", "none"]))
def test_the_rows_of_all_workers_are_the_batch(count, batch, step, packing):
    batch = max(batch, count)
    whole = stream(packing).windows(step * batch, batch)
    loaders = [Loader(stream(packing), batch, rank, count) for rank in range(count)]
    assert np.array_equal(np.concatenate([loader.windows(step) for loader in loaders]), whole)
    assert {loader.predictions(step) for loader in loaders} == {int((whole[:, 1:] != PAD).sum())}
    for loader in loaders:
        loader.close()


def test_a_restart_at_any_step_gives_the_same_rows():
    straight = Loader(stream(), 6, 1, 2)
    steps = [straight.windows(step) for step in range(40)]
    resumed = Loader(stream(), 6, 1, 2)
    for step in (17, 18, 19, 3, 39, 38, 0, 0, 1):
        assert np.array_equal(resumed.windows(step), steps[step])
    straight.close()
    resumed.close()


class Counted(Stream):
    """Notes what is read."""

    def __init__(self) -> None:
        super().__init__(TEXT, 8, "concat", 2)
        self.read: list[tuple[int, int]] = []
        self.later = threading.Event()

    def windows(self, first, count):
        self.read.append((first, count))
        if len(self.read) == 2:
            self.later.set()
        return super().windows(first, count)


def test_the_next_step_is_read_meanwhile_and_only_once():
    counted = Counted()
    loader = Loader(counted, 7, 1, 2)
    loader.windows(5)
    assert counted.later.wait(10)  # nobody has asked for step 6
    loader.windows(5)
    loader.windows(6)
    loader.predictions(6)
    loader.close()
    assert counted.read[:2] == [(38, 4), (45, 4)]  # rows 3 to 6 of each batch of 7, no other
    assert [first for first, _ in counted.read[2:]] in ([], [52])


class Broken(Stream):
    def windows(self, first, count):
        if first >= 12:
            raise InputError("a shard went away")
        return super().windows(first, count)


def test_what_reading_raises_reaches_the_one_who_asks():
    loader = Loader(Broken(TEXT, 8, "concat", 2), 4)
    for step in range(3):
        loader.windows(step)  # step 3 has failed by now or will, and is not asked for yet
    for _ in range(2):
        with pytest.raises(InputError, match="a shard went away"):
            loader.windows(3)
    assert loader.windows(1).shape == (4, 9)
    loader.close()


def test_close_leaves_no_thread_behind():
    before = threading.active_count()
    loader = Loader(stream(), 4)
    loader.windows(0)
    assert threading.active_count() == before + 1
    loader.close()
    loader.close()
    assert threading.active_count() == before


def test_more_workers_than_rows_are_refused():
    with pytest.raises(InputError, match=r"train\.batch 3 is smaller than the number of workers 4"):
        Loader(stream(), 3, 0, 4)

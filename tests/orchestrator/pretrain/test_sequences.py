"""Windows against the text written out by hand: every token predicted once, from those before it."""

from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.pretrain.sequences import PAD, Pass, Stream
from orchestrator.pretrain.tokens import Corpus

END = 0


def corpus(*lengths: int) -> Corpus:
    """Documents of distinct tokens, each ended by END."""
    documents, token = [], 1
    for length in lengths:
        documents.append([*range(token, token + length), END])
        token += length
    starts = np.cumsum([0, *map(len, documents)])
    return Corpus(np.array([*chain(*documents)], np.uint16), starts, END)


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def predictions(windows: np.ndarray) -> Counter:
    """How often each pair (token, the next) is predicted."""
    pairs = np.stack((windows[:, :-1], windows[:, 1:]), -1).reshape(-1, 2)
    return Counter(map(tuple, pairs[pairs[:, 1] != PAD].tolist()))


def test_concat_by_hand():
    text = Pass(corpus(3, 1), 4, "concat", np.array([1, 0]))  # 4 END 1 2 3 END
    assert len(text) == 2
    assert text.windows(np.array([1, 0])).tolist() == [[2, 3, END, PAD, PAD], [END, 4, END, 1, 2]]


def test_none_by_hand():
    text = Pass(corpus(5, 1, 2), 4, "none")
    assert len(text) == 3
    assert text.windows(np.arange(3)).tolist() == [
        [1, 2, 3, 4, 5],  # cut off
        [6, END, PAD, PAD, PAD],
        [7, 8, END, PAD, PAD],
    ]


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 12), st.randoms())
def test_concat_predicts_every_token_once_from_the_one_before(lengths, length, random):
    order = list(range(len(lengths)))
    random.shuffle(order)
    source = corpus(*lengths)
    text = [END]
    for document in order:
        text += source.tokens[source.starts[document] : source.starts[document + 1]].tolist()
    one_pass = Pass(source, length, "concat", np.array(order))
    windows = one_pass.windows(np.arange(len(one_pass)))
    assert predictions(windows) == Counter(pairwise(text))
    assert ((windows[:, 1:] == PAD).sum(1)[:-1] == 0).all()  # only the last may be short


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 12), st.integers(1, 60), st.sampled_from(["concat", "none"]))
def test_a_limit_takes_no_more_windows_than_it_needs(lengths, length, tokens, packing):
    one_pass = Pass(corpus(*lengths), length, packing)
    counts = (one_pass.windows(np.arange(len(one_pass)))[:, 1:] != PAD).sum(1)
    taken = one_pass.first(tokens)
    assert counts[:taken].sum() >= min(tokens, counts.sum())
    assert counts[: taken - 1].sum() < tokens
    assert one_pass.first(None) == len(one_pass)


@pytest.mark.parametrize("packing", ["concat", "none"])
def test_the_stream_is_pass_after_pass_each_in_another_order(packing):
    source = corpus(*range(3, 40))
    stream = Stream(source, 8, packing, seed=3)
    whole = Pass(source, 8, packing)
    size = len(whole)
    first, second = stream.windows(0, size), stream.windows(size, size)
    assert first[:, 1:][first[:, 1:] != PAD].size == second[:, 1:][second[:, 1:] != PAD].size
    if packing == "concat":
        for windows in (first, second):
            predicted = windows[:, 1:]
            assert sorted(predicted[predicted != PAD].tolist()) == sorted(source.tokens.tolist())
    else:
        in_order = sorted(whole.windows(np.arange(size)).tolist())
        assert sorted(first.tolist()) == sorted(second.tolist()) == in_order
    assert first.tolist() != second.tolist()


@settings(deadline=None)
@given(st.integers(0, 100), st.integers(1, 50), st.sampled_from(["concat", "none"]))
def test_a_batch_follows_from_its_number_alone(first, count, packing):
    source = corpus(3, 5, 8, 2, 13)
    straight = Stream(source, 4, packing, seed=1).windows(0, 150)
    jumped = Stream(source, 4, packing, seed=1)
    jumped.windows(700, 3)
    assert np.array_equal(jumped.windows(first, count), straight[first : first + count])


def test_seeds_differ():
    source = corpus(*range(3, 40))
    one, other, again = (Stream(source, 8, "concat", seed).windows(0, 20) for seed in (0, 1, 0))
    assert not np.array_equal(one, other)
    assert np.array_equal(one, again)

"""Windows against the text written out by hand: every token predicted once, from those before it."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_files import END, corpus, documents

from orchestrator.pretrain import sequences
from orchestrator.pretrain.sequences import PAD, Pass, Stream
from orchestrator.shards.corpus import Corpus

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)
PACKINGS = st.sampled_from(["concat", "none"])


@pytest.fixture(params=[256, 2], autouse=True, scope="module")
def mixed(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many blocks are shuffled together: all of these corpora's, or so few that there are many groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences, "MIXED", request.param)
        yield request.param


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    return corpus(*draw(LENGTHS), shards=draw(st.integers(1, 4)), block=draw(st.integers(1, 40)))


def texts(source: Corpus) -> list[list[int]]:
    """The documents, shard by shard."""
    found = []
    for shard in range(len(source.side.shards)):
        tokens, starts = source.tokens(shard), source.starts(shard)
        found += [tokens[start:stop].tolist() for start, stop in pairwise(starts)]
    return found


def predictions(windows: np.ndarray) -> Counter:
    """How often each pair (token, the next) is predicted."""
    pairs = np.stack((windows[:, :-1], windows[:, 1:]), -1).reshape(-1, 2)
    return Counter(map(tuple, pairs[pairs[:, 1] != PAD].tolist()))


def predicted(windows: np.ndarray) -> np.ndarray:
    return windows[:, 1:][windows[:, 1:] != PAD]


def test_concat_by_hand():
    source = corpus(3, 1, 2, shards=3)  # 1 2 3 END; 4 END; 5 6 END
    text = Pass(source, 4, "concat", np.array([2, 0]))
    assert len(text) == 2
    assert text.windows(np.array([1, 0])).tolist() == [[END, 1, 2, 3, END], [END, 5, 6, END, PAD]]
    one_block = Pass(corpus(3, 1, 2), 4, "concat")
    assert one_block.windows(np.arange(3)).tolist() == [
        [END, 1, 2, 3, END],
        [END, 4, END, 5, 6],
        [6, END, PAD, PAD, PAD],
    ]
    assert one_block.predictions(np.arange(3)).tolist() == [4, 4, 1]


def test_none_by_hand():
    text = Pass(corpus(5, 1, 2), 4, "none")
    assert len(text) == 3
    assert text.windows(np.arange(3)).tolist() == [
        [1, 2, 3, 4, 5],  # cut off
        [6, END, PAD, PAD, PAD],
        [7, 8, END, PAD, PAD],
    ]


@settings(max_examples=40)
@given(corpora(), st.integers(1, 12), st.none() | st.integers(0, 99))
def test_concat_predicts_every_token_once_from_the_one_before(source, length, seed):
    blocks = source.blocks.shard.size
    order = np.arange(blocks)[:: -1 if seed else 1]
    random = None if seed is None else np.random.default_rng(seed)
    one_pass = Pass(source, length, "concat", order, random)
    windows = one_pass.windows(np.arange(len(one_pass)))
    assert sorted(predicted(windows).tolist()) == sorted(chain(*texts(source)))
    text = windows[0, :1].tolist() + predicted(windows).tolist()
    assert predictions(windows) == Counter(pairwise(text))  # a block begins as if after an end, which the last one had
    for document in texts(source):  # whole, in one piece
        begin = text.index(document[0])
        assert text[begin : begin + len(document)] == document


@settings(max_examples=40)
@given(corpora(), st.integers(1, 12), st.integers(1, 60), PACKINGS)
def test_a_limit_takes_no_more_windows_than_it_needs(source, length, tokens, packing):
    one_pass = Pass(source, length, packing)
    counts = (one_pass.windows(np.arange(len(one_pass)))[:, 1:] != PAD).sum(1)
    assert one_pass.predictions(np.arange(len(one_pass))).tolist() == counts.tolist()
    taken = one_pass.first(tokens)
    assert counts[:taken].sum() >= min(tokens, counts.sum())
    assert counts[: taken - 1].sum() < tokens
    assert one_pass.first(None) == len(one_pass)


@settings(max_examples=40)
@given(corpora(), st.integers(1, 12), st.integers(0, 9))
def test_each_pass_of_the_stream_has_every_document_or_token_once(source, length, seed):
    concat, none = (Stream(source, length, packing, seed) for packing in ("concat", "none"))
    for epoch in range(3):
        tokens = predicted(concat.windows(epoch * concat.size, concat.size))
        assert sorted(tokens.tolist()) == sorted(chain(*texts(source)))
        windows = none.windows(epoch * none.size, none.size).tolist()
        cut = [document[: length + 1] for document in texts(source)]
        assert sorted(windows) == sorted(document + [PAD] * (length + 1 - len(document)) for document in cut)


@pytest.mark.parametrize("packing", ["concat", "none"])
def test_passes_and_seeds_differ_in_their_order(packing):
    source = corpus(*range(3, 40), shards=3, block=50)
    one, again, other = (Stream(source, 8, packing, seed) for seed in (0, 0, 1))
    first, second = one.windows(0, one.size), one.windows(one.size, one.size)
    assert np.array_equal(again.windows(0, one.size), first)
    assert first.tolist() != second.tolist()
    assert first.tolist() != other.windows(0, one.size).tolist()


@settings(max_examples=40)
@given(corpora(), st.integers(0, 100), st.integers(1, 50), PACKINGS)
def test_a_batch_follows_from_its_number_alone(source, first, count, packing):
    straight = Stream(source, 4, packing, seed=1).windows(0, 150)[first : first + count]
    jumped = Stream(source, 4, packing, seed=1)
    jumped.windows(700, 3)
    assert np.array_equal(jumped.windows(first, count), straight)
    assert jumped.predictions(first, count) == (straight[:, 1:] != PAD).sum()


def test_a_batch_mixes_documents_from_all_over_the_corpus(mixed):
    """Neighbours in a batch come from other places: their distance is that of random pairs of documents."""
    source = corpus(*[1] * 4096, shards=8, block=64)  # 128 blocks of 32 documents; a document's token is its number
    rows = Stream(source, 1, "none", seed=5).windows(0, 4096)[:, 0]
    distance = np.abs(np.diff(rows)).mean() / 4096  # 1/3 for random pairs
    if mixed == 256:
        assert distance == pytest.approx(1 / 3, abs=0.02)
    else:  # two blocks at a time: half of the pairs lie within one block
        assert distance == pytest.approx(1 / 6, abs=0.03)


def test_documents_by_hand():
    assert documents(2, 1) == [[1, 2, END], [3, END]]
    assert texts(corpus(2, 1, shards=2)) == [[1, 2, END], [3, END]]

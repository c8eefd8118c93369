"""Ids become batches: the laws of shifting, padding, positions and masks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import BatchShape, duplicate_rows, make_batch, make_source, pack, unpack
from regard.padding import BOS, EOS, PAD
from tests.parts import exactly

SENTENCES = st.lists(st.lists(st.integers(4, 30), max_size=7), min_size=1, max_size=5)
PAIRS = st.lists(
    st.tuples(st.lists(st.integers(4, 30), max_size=7), st.lists(st.integers(4, 30), max_size=7)),
    min_size=1,
    max_size=5,
)


@given(PAIRS)
def test_the_decoder_reads_one_token_behind_what_it_says(pairs):
    tgt = make_batch(*zip(*pairs, strict=True)).tgt
    for row, (_, sentence) in enumerate(pairs):
        n = len(sentence) + 1
        assert tgt.inputs[row, :n].tolist() == [BOS, *sentence]
        assert tgt.labels[row, :n].tolist() == [*sentence, EOS]
        assert tgt.token_mask[row].tolist() == [True] * n + [False] * (tgt.inputs.shape[1] - n)
    assert tgt.n_tokens == sum(len(sentence) + 1 for _, sentence in pairs) == int(tgt.token_mask.sum())


@given(PAIRS)
def test_padding_fills_up(pairs):
    batch = make_batch(*zip(*pairs, strict=True))
    outside = torch.arange(batch.src.ids.shape[1]) >= batch.src.lengths[:, None]
    assert (batch.src.ids[outside] == PAD).all()
    for filled in (batch.tgt.inputs, batch.tgt.labels):
        assert (filled[~batch.tgt.token_mask] == 0).all()


@given(PAIRS)
def test_columns_stand_where_they_stand_and_past_the_longest_sentence_at_zero(pairs):
    batch = make_batch(*zip(*pairs, strict=True), widths=(9, 11))
    for positions, longest in (
        (batch.src.positions, int(batch.src.lengths.max())),
        (batch.tgt.positions, int(batch.tgt.token_mask.sum(1).max())),
    ):
        assert positions.tolist() == [[*range(longest), *[0] * (positions.shape[1] - longest)]]


@given(SENTENCES)
def test_a_source_closes_with_its_end_and_hides_its_padding(sentences):
    src = make_source(sentences)
    assert src.lengths.tolist() == [len(sentence) + 1 for sentence in sentences]
    assert src.ids.shape[1] == max(src.lengths.tolist())
    for row, sentence in enumerate(sentences):
        assert src.ids[row, : len(sentence) + 1].tolist() == [*sentence, EOS]
    tile = src.mask.tile(range(1), range(src.ids.shape[1]), torch.device("cpu"))
    seen = (
        torch.ones_like(src.ids, dtype=torch.bool) if tile is None else tile.expand(len(sentences), 1, 1, -1)[:, 0, 0]
    )
    exactly(seen, torch.arange(src.ids.shape[1]) < src.lengths[:, None])


def test_without_padding_the_kernels_are_told_so():
    assert make_source([[5, 6], [7, 8]]).mask.key_lengths is None
    assert make_source([[5, 6], [7]]).mask.key_lengths is not None
    assert make_source([[5, 6]], width=4).mask.key_lengths is not None


@given(PAIRS, st.integers(8, 11), st.integers(8, 11))
def test_a_width_adds_padding_alone(pairs, src_width, tgt_width):
    src, tgt = zip(*pairs, strict=True)
    narrow, wide = make_batch(src, tgt), make_batch(src, tgt, (src_width, tgt_width))
    assert wide.src.ids.shape[1] == src_width
    assert wide.tgt.inputs.shape[1] == tgt_width
    exactly(wide.src.ids[:, : narrow.src.ids.shape[1]], narrow.src.ids)
    exactly(wide.tgt.labels[:, : narrow.tgt.labels.shape[1]], narrow.tgt.labels)
    assert wide.tgt.n_tokens == narrow.tgt.n_tokens
    assert not wide.tgt.token_mask[:, narrow.tgt.token_mask.shape[1] :].any()


def test_ids_of_a_store_do_as_well_as_lists():
    stored = [np.array([5, 6, 7], dtype="<u2"), np.array([8], dtype="<u2")]
    exactly(make_source(stored).ids, make_source([[5, 6, 7], [8]]).ids)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="a sentence of 4 ids does not fit a batch 3 wide"):
        make_source([[5, 6, 7]], width=3)
    with pytest.raises(ValueError, match="one target for each source, got 2 and 1"):
        make_batch([[5], [6]], [[7]])


def test_a_batch_moves_whole():
    batch = make_batch([[5, 6], [7]], [[8], [9, 10]])
    moved = batch.to(torch.device("meta"))
    tensors = (
        moved.src.ids,
        moved.src.positions,
        moved.src.lengths,
        moved.tgt.inputs,
        moved.tgt.labels,
        moved.tgt.token_mask,
    )
    assert all(tensor.device.type == "meta" for tensor in (*tensors, moved.tgt.positions, moved.src.mask.key_lengths))
    assert moved.src.mask.n_keys == batch.src.mask.n_keys


def as_rows(sentences, head, tail, width):
    """Sets sentences between head and tail, as a store gives them."""
    whole = [[*head, *sentence, *tail] for sentence in sentences]
    ids = np.array([row + [PAD] * (width - len(row)) for row in whole], dtype=np.int64).reshape(len(whole), width)
    return ids, np.array([len(row) for row in whole], dtype=np.int64)


def packed(pairs, shape):
    src, tgt = zip(*pairs, strict=True)
    return pack(as_rows(src, [], [EOS], shape.src), as_rows(tgt, [BOS], [EOS], shape.tgt + 1), shape)


@given(PAIRS)
def test_a_packed_batch_is_the_batch(pairs):
    expected = make_batch(*zip(*pairs, strict=True), widths=(9, 11))
    shape = BatchShape(len(pairs), 9, 11)
    found = unpack(packed(pairs, shape), shape, False, expected.tgt.n_tokens)
    for side, names in (
        ("src", ("ids", "positions", "lengths")),
        ("tgt", ("inputs", "labels", "positions", "token_mask")),
    ):
        for name in names:
            exactly(getattr(getattr(found, side), name), getattr(getattr(expected, side), name))
    assert found.tgt.n_tokens == expected.tgt.n_tokens
    exactly(found.src.mask.key_lengths, found.src.lengths)


@given(PAIRS)
def test_rows_that_are_not_filled_say_nothing(pairs):
    shape = BatchShape(len(pairs) + 2, 8, 8)
    found = unpack(packed(pairs, shape), shape, False, 0)
    assert not found.tgt.token_mask[len(pairs) :].any()
    assert found.src.lengths[len(pairs) :].tolist() == [1, 1]
    assert found.src.ids[len(pairs) :, 0].tolist() == [EOS, EOS]


def test_a_full_batch_has_no_mask():
    shape = BatchShape(2, 3, 2)
    assert unpack(packed([([5, 6], [7]), ([8, 9], [7])], shape), shape, True, 4).src.mask.key_lengths is None


def test_a_doubled_batch_stands_below_itself():
    batch = duplicate_rows(make_batch([[5, 6], [7]], [[8], [9, 5]]))
    for x in (batch.src.ids, batch.src.lengths, batch.src.mask.key_lengths, batch.tgt.inputs, batch.tgt.labels):
        exactly(x[:2], x[2:])
    assert batch.tgt.n_tokens == 10 == int(batch.tgt.token_mask.sum())

"""Where heads look, on weights that were planted and means that were computed by hand."""

from math import log

import pytest
import torch

from regard.batch import BOS, EOS, PAD, make_batch
from regard.trace.habits import habit_sums, habits, sights
from regard.trace.punctuation import is_punctuation, punctuation_of
from tests.decode.test_translator import TOKENIZER

COMMA = 7
BATCH = make_batch([[5, COMMA, 6], [5]], [[COMMA, 5], [6, 5, COMMA]])
PUNCTUATION = (torch.arange(12) == COMMA, torch.arange(12) == COMMA)
SIGHTS = sights(BATCH, PUNCTUATION)


def habits_of(kind, *planted):
    """Gives the habits of heads whose weights are planted for each sentence of a batch."""
    weights = torch.stack([torch.stack(each) for each in planted], dim=1)  # (B, H, Q, K)
    return [habits(kind, each) for each in habit_sums(weights, SIGHTS[kind]).T.tolist()]


def shifted(step):
    """Gives a head that looks `step` ahead in both sources, of 4 and 2 tokens, or at the edge if it must."""
    tables = []
    for n in (4, 2):
        table = torch.zeros(4, 4)
        for q in range(4):
            table[q, min(max(q + step, 0), n - 1)] = 1.0
        tables.append(table)
    return tables


def test_who_looks_at_what():
    encoder, decoder, cross = (SIGHTS[kind] for kind in ("encoder", "decoder", "cross"))
    assert BATCH.src.ids.tolist() == [[5, COMMA, 6, EOS], [5, EOS, PAD, PAD]]
    assert BATCH.tgt.read.tolist() == [[BOS, COMMA, 5, PAD], [BOS, 6, 5, COMMA]]
    assert encoder.real.sum(1).tolist() == [4, 2] and decoder.real.sum(1).tolist() == [3, 4]
    assert encoder.end.nonzero().tolist() == cross.end.nonzero().tolist() == [[0, 3], [1, 1]]
    assert not decoder.end.any()
    assert encoder.punctuation.nonzero().tolist() == [[0, 1]]
    assert decoder.punctuation.nonzero().tolist() == [[0, 1], [1, 3]]
    assert cross.n_keys.tolist() == [[4] * 4, [2] * 4] and decoder.n_keys.tolist() == [[1, 2, 3, 4]] * 2


def test_heads_that_look_at_one_place():
    own, before, after = habits_of("encoder", shifted(0), shifted(-1), shifted(1))
    assert (own.diagonal, own.previous, own.next, own.offset, own.entropy, own.spread) == (1, 0, 0, 0, 0, 0)
    # six real queries: two of them have none before, and two none after, and look at themselves
    assert (before.previous, before.diagonal, before.offset) == pytest.approx((4 / 6, 2 / 6, -4 / 6))
    assert (after.next, after.diagonal, after.offset) == pytest.approx((4 / 6, 2 / 6, 4 / 6))
    assert (own.first, before.first, after.first) == pytest.approx((2 / 6, 4 / 6, 0))
    assert (own.end, before.end, after.end) == pytest.approx((2 / 6, 0, 4 / 6))
    assert (own.punctuation, before.punctuation, after.punctuation) == pytest.approx((1 / 6, 1 / 6, 1 / 6))


def test_a_head_that_looks_at_the_first_token_and_one_that_looks_at_all():
    first = [torch.eye(4)[[0, 0, 0, 0]]] * 2
    even = [torch.full((4, 4), 0.25), torch.tensor([[0.5, 0.5, 0, 0]] * 4)]
    one, all_alike = habits_of("cross", first, even)
    # targets have 3 and 4 tokens that say something
    assert (one.first, one.entropy, one.offset) == pytest.approx((1.0, 0.0, -(0 + 1 + 2 + 0 + 1 + 2 + 3) / 7))
    assert (all_alike.entropy, all_alike.spread) == pytest.approx(((3 * log(4) + 4 * log(2)) / 7, 1.0))
    assert all_alike.end == pytest.approx((3 * 0.25 + 4 * 0.5) / 7)
    assert all_alike.punctuation == pytest.approx(3 * 0.25 / 7)
    assert all_alike.offset == pytest.approx((1.5 + 0.5 - 0.5 + 0.5 - 0.5 - 1.5 - 2.5) / 7)


def test_a_decoder_sees_no_end_and_no_choice_at_the_first_token():
    causal = torch.ones(4, 4).tril()
    even = causal / causal.sum(-1, keepdim=True)
    (found,) = habits_of("decoder", [even, even])
    assert found.end is None
    assert found.spread == pytest.approx(1.0)
    assert found.entropy == pytest.approx((2 * log(2) + 2 * log(3) + log(4)) / 7)


def test_padded_queries_count_for_nothing():
    planted = shifted(0)
    planted[1][2:] = 0.25
    assert habits_of("encoder", planted) == habits_of("encoder", shifted(0))


@pytest.mark.parametrize("piece", [".", "▁(", "。", "……", "?!", "▁“"])
def test_signs_are_punctuation(piece):
    assert is_punctuation(piece)


@pytest.mark.parametrize("piece", ["a.", "▁", "", "</s>", "<0x2E>", "我", "3", "+"])
def test_all_else_is_not(piece):
    assert not is_punctuation(piece)


def test_punctuation_of_a_vocabulary():
    flags = punctuation_of(TOKENIZER, "src")
    pieces = TOKENIZER.pieces(range(len(flags)), "src")
    assert {piece for piece, flag in zip(pieces, flags.tolist(), strict=True) if flag} == {*".,!?。，！"}

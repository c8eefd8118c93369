"""Where heads look, on weights that were planted and means that were computed by hand.

The report on heads: what it says is what one would measure head by head, and a useless head comes last.
"""

import json
from dataclasses import fields
from math import log

import pytest
import torch

import regard
from regard.batch import make_batch
from regard.padding import BOS, EOS, PAD
from regard.score import score
from regard.terminal import to_json_line
from regard.trace.attention_map import mean_relative_entropy
from regard.trace.head_report import (
    ORDERS,
    HeadStats,
    attention_contexts,
    is_punctuation,
    mean_stats,
    punctuation_ids,
    report_heads,
    stat_sums,
)
from regard.trace.replay import replay
from tests.pipeline.test_translator import TOKENIZER
from tests.trace.makers import make_model, make_translator
from tests.trace.planted import learned_once
from tests.trace.test_head_ablation import without

COMMA = 7
BATCH = make_batch([[5, COMMA, 6], [5]], [[COMMA, 5], [6, 5, COMMA]])
PUNCTUATION = (torch.arange(12) == COMMA, torch.arange(12) == COMMA)
SIGHTS = attention_contexts(BATCH, PUNCTUATION)


def habits_of(kind, *planted):
    """Gives the habits of heads whose weights are planted for each sentence of a batch."""
    weights = torch.stack([torch.stack(each) for each in planted], dim=1)  # (B, H, Q, K)
    return [mean_stats(kind, each) for each in stat_sums(weights, SIGHTS[kind]).T.tolist()]


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
    assert BATCH.tgt.inputs.tolist() == [[BOS, COMMA, 5, PAD], [BOS, 6, 5, COMMA]]
    assert encoder.query_mask.sum(1).tolist() == [4, 2] and decoder.query_mask.sum(1).tolist() == [3, 4]
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
    flags = punctuation_ids(TOKENIZER, "src")
    pieces = TOKENIZER.pieces(range(len(flags)), "src")
    assert {piece for piece, flag in zip(pieces, flags.tolist(), strict=True) if flag} == {*".,!?。，！"}


PAIRS = [("bad cab", "face"), ("abc", "hello"), ("dead bee", "ab"), ("a", "a")]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder, pairs = learned_once(tmp_path_factory)
    return regard.load(folder), pairs[:60]


def mean_loss(model, translator, pairs):
    total, n = 0.0, 0
    for src, tgt in pairs:
        batch = make_batch([translator.tokenizer.encode(src, "src")], [translator.tokenizer.encode(tgt, "tgt")])
        costs = -model(batch).detach().log_softmax(-1).gather(-1, batch.tgt.labels[..., None])
        total, n = total + float(costs.sum()), n + batch.tgt.n_tokens
    return total / n


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_losses_are_those_of_models_without_the_head(family):
    changes = {"n_encoder_layers": 2} if family == "transformer" else {"n_heads": 1}
    model = make_model(family, "none", **changes)
    translator = make_translator(model)
    report = report_heads(translator, PAIRS)
    assert report.whole.loss == pytest.approx(mean_loss(model, translator, PAIRS))
    places = [str(head) for head in report.heads]
    kinds = ["encoder:0", "encoder:1", "decoder:0", "cross:0"]
    assert places == ([f"{kind}:{n}" for kind in kinds for n in (0, 1)] if family == "transformer" else ["cross:0:0"])
    for head in report.heads:
        off = mean_loss(without(model, head.kind, head.layer, head.head), translator, PAIRS)
        assert head.loss == pytest.approx(off - report.whole.loss)
        assert head.bleu is None


def test_habits_are_those_of_single_looks():
    translator = make_translator(make_model(n_decoder_layers=2))
    src, tgt = translator.tokenizer.encode("abc", "src"), translator.tokenizer.encode("hello", "tgt")
    looks = {(look.kind, look.layer): look for look in replay(translator.model, src, [*tgt, EOS]).attention}
    for head in report_heads(translator, [("abc", "hello")]).heads:
        look = looks[head.kind, head.layer]
        weights = look.weights(head.head)
        assert head.habits.entropy == pytest.approx(float(look.entropy(head.head).mean()))
        assert head.habits.spread == pytest.approx(float(mean_relative_entropy(look)[head.head]))
        assert head.habits.first == pytest.approx(float(weights[:, 0].mean()))
        assert head.habits.diagonal == pytest.approx(float(weights.diagonal().sum() / len(weights)))
        assert head.habits.next == pytest.approx(float(weights.diagonal(1).sum() / len(weights)))


def test_bleu_is_that_of_greedy_translations_without_the_head(learned):
    translator, pairs = learned
    report = report_heads(translator, pairs[:5], bleu=True)
    assert report.whole.bleu > 50
    plain = translator.model
    for head in report.heads:
        alone = make_translator(without(plain, head.kind, head.layer, head.head), max_extra=20, max_ratio=2.0)
        alone.tokenizer = translator.tokenizer
        outputs = [found.text for found in alone.translate([src for src, _ in pairs[:5]])]
        off = score(outputs, [tgt for _, tgt in pairs[:5]], translator.tgt_lang).bleu
        assert head.bleu == pytest.approx(report.whole.bleu - off)


@pytest.mark.parametrize("place", ["encoder:0:1", "decoder:0:1", "cross:0:0"])
def test_a_useless_head_comes_last(learned, place):
    """A head whose output nobody reads is planted in a model that needs all its heads."""
    translator, pairs = learned
    kind, layer, head = place.split(":")
    planted = make_translator(without(translator.model, kind, int(layer), int(head)))
    planted.tokenizer = translator.tokenizer
    ranked = report_heads(planted, pairs).ranked().heads
    assert (str(ranked[-1]), ranked[-1].loss) == (place, 0.0)
    assert all(each.loss > 0.01 for each in ranked[:-1])


def test_the_order_of_the_text_does_not_matter(learned):
    translator, pairs = learned
    assert report_heads(translator, pairs) == report_heads(translator, pairs[::-1])


def test_the_model_that_runs_is_not_touched():
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    report_heads(make_translator(model), PAIRS)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_heads_are_sorted_by_anything_that_is_known():
    report = report_heads(make_translator(make_model(n_encoder_layers=2)), PAIRS)
    assert {field.name for field in fields(HeadStats)} <= {*ORDERS}
    for by in ORDERS:
        heads = report.ranked(by).heads
        assert sorted(map(str, heads)) == sorted(map(str, report.heads))
    losses = [head.loss for head in report.ranked().heads]
    assert losses == sorted(losses, reverse=True)
    assert [head.kind for head in report.ranked("end").heads[-2:]] == ["decoder"] * 2
    assert [head.kind for head in report.ranked("kind").heads][:2] == ["cross"] * 2
    with pytest.raises(ValueError, match="unknown order of heads 'entropie': did you mean 'entropy'"):
        report.ranked("entropie")


def test_pairs_that_cannot_be_read_are_left_out():
    translator = make_translator(make_model())
    report = report_heads(translator, [*PAIRS, ("", "a"), ("a", ""), ("a" * 31, "b")])
    assert (report.n_pairs, report.n_unread) == (4, 3)
    assert report.heads == report_heads(translator, PAIRS).heads
    with pytest.raises(ValueError, match="needs pairs that the model can read, got 0 of 1"):
        report_heads(translator, [("", "")])


def test_a_report_is_json():
    report = report_heads(make_translator(make_model()), PAIRS)
    said = json.loads(to_json_line(report.ranked("entropy")))
    assert said["heads"][0]["habits"].keys() == {field.name for field in fields(HeadStats)}
    assert said["whole"] == {"loss": pytest.approx(report.whole.loss), "bleu": None}


def test_progress_is_told():
    told = []

    def bar(items, total, what):
        told.append((total, what))
        return items

    report_heads(make_translator(make_model()), PAIRS, bar=bar)
    assert told == [(1, "looking at heads"), (6, "switching heads off")]

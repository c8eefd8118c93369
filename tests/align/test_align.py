"""Words that belong together are found: on a task where they are known, and on the bundled models."""

from pathlib import Path

import pytest
import torch

import regard
from regard.align import align, pair_weights
from regard.align.heads import GOLD, LEAVE_ONE_OUT, REVERSE, load_heads
from regard.align.links import read_gold, score_alignment
from regard.zoo import HOME, present
from tests.trace.makers import make_model, make_translator
from tests.trace.planted import gold_links, learned_once

GOLDEN = Path(__file__).parent.parent / "golden"
bundled = pytest.mark.skipif(not {"zh-en", "en-zh"} <= present().keys(), reason="needs the bundled models")


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder, pairs = learned_once(tmp_path_factory)
    return regard.load(folder), pairs


@pytest.fixture(scope="module")
def golden():
    """Gives pairs that were linked by hand, and their links."""
    lines = (GOLDEN / "alignment.zh-en.tsv").read_text(encoding="utf-8").splitlines()
    links = (GOLDEN / "alignment.zh-en.pharaoh").read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines], read_gold(links, "gold")


def rate(found, gold):
    return score_alignment([set(pair.links) for pair in found.pairs], gold).aer


def test_copied_and_reordered_words_are_found(learned):
    translator, pairs = learned
    gold = gold_links(pairs)
    by_gold, by_need = align(translator, pairs, gold=gold), align(translator, pairs)
    assert (by_gold.forward.by, by_need.forward.by) == (GOLD, LEAVE_ONE_OUT)
    assert (by_gold.forward.n_pairs, by_need.forward.n_pairs) == (200, 100)
    assert rate(by_gold, gold) == by_gold.score.aer < 0.02
    assert rate(by_need, gold) < 0.02
    assert by_need.score is None and by_need.backward is None
    wrong = align(translator, pairs, heads=[by_need.forward.heads.replace("say", "read")])
    assert rate(wrong, gold) > 0.5
    assert by_gold.pairs[0].src == pairs[0][0].split() and by_gold.pairs[0].tgt == pairs[0][1].split()


def test_batches_and_neighbours_do_not_matter(learned):
    translator, pairs = learned
    every = align(translator, pairs[:40], heads=["cross:0:1:say"])
    assert every.pairs[::-1] == align(translator, pairs[39::-1], heads=["cross:0:1:say"]).pairs
    for place in (0, 7):
        assert align(translator, [pairs[place]], heads=["cross:0:1:say"]).pairs == [every.pairs[place]]


@bundled
def test_chosen_heads_of_the_bundled_models_beat_the_first_of_the_last_layer(golden):
    pairs, gold = golden
    zh_en, en_zh = regard.load("zh-en"), regard.load("en-zh")
    usual, mean = "cross:1:0:say", "cross:all:all:say"

    def rated(reverse, *heads):
        found = align(zh_en, pairs, reverse, heads=heads, units="tokenised")
        return rate(found, gold), found.forward

    both, chosen = rated(en_zh)
    kept = load_heads(HOME / "zh-en")  # as these pairs, too, would have it
    assert (chosen.heads, chosen.by) == (kept, REVERSE)
    assert both < rated(en_zh, mean, mean)[0] < rated(en_zh, usual, usual)[0]
    alone, chosen = rated(None)
    assert chosen.by == LEAVE_ONE_OUT
    assert alone <= rated(None, mean)[0] < rated(None, usual)[0]
    assert rated(en_zh, kept, load_heads(HOME / "en-zh"))[0] < 0.11
    assert max(both, rated(None, kept)[0]) < 0.125


@bundled
@pytest.mark.parametrize("units", ["characters", "pieces"])
def test_chinese_is_aligned_as_it_is_written(units):
    zh_en, text = regard.load("zh-en"), "我有两个哥哥。"
    (pair,) = align(zh_en, [(text, "I have two older brothers.")], regard.load("en-zh"), units=units).pairs
    pieces = [piece.removeprefix("▁") for piece in zh_en.tokenizer.pieces(zh_en.tokenizer.encode(text, "src"), "src")]
    words = {"characters": [*text], "pieces": [piece for piece in pieces if piece]}
    assert pair.src == words[units] and pair.tgt == ["I", "have", "two", "older", "brothers."]
    assert (next(place for place, word in enumerate(pair.src) if "两" in word), 2) in pair.links


def test_weights_of_a_pair_are_the_mean_of_both_directions_by_hand():
    one, other = make_translator(make_model()), make_translator(make_model(n_decoder_layers=2))
    other.src_lang, other.tgt_lang = "en", "zh"
    alone = pair_weights(one, ("bad cab", "face"), None, ["cross:0:1:say"], "characters")
    back = pair_weights(other, ("face", "bad cab"), None, ["cross:all:all:read"], "characters")
    both = pair_weights(one, ("bad cab", "face"), other, ["cross:0:1:say", "cross:all:all:read"], "characters")
    torch.testing.assert_close(both, (alone * back.T).sqrt())
    assert alone.shape == (1, 2)


def test_pairs_that_cannot_be_read_have_no_links():
    translator = make_translator(make_model())
    found = align(translator, [("ab", ""), ("", ""), ("a" * 31, "b"), ("ab", "ba")], heads=["cross:0:0:say"])
    assert [len(pair.links) > 0 for pair in found.pairs] == [False, False, False, True]
    assert found.n_unread == 3
    assert align(translator, [], heads=["cross:0:0:say"]).pairs == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": ["cross:1:0"]}, "the layer of cross attention must lie in 0 … 0, got 1 in 'cross:1:0'"),
        ({"heads": ["cross:0:2"]}, "the head of cross attention must lie in 0 … 1, got 2 in 'cross:0:2'"),
        ({"heads": ["self:0:2"]}, "heads must be named cross:LAYER:HEAD.* got 'self:0:2'"),
        ({"heads": ["cross:all:1"]}, "a head must be one of one layer, got 'cross:all:1'"),
        ({"heads": ["cross:0:0", "cross:0:1"]}, "for each model, of which there are 1, got cross:0:0, cross:0:1"),
        ({"symmetrise": "grow"}, "unknown way to symmetrise 'grow': did you mean 'grow-diag'"),
        ({"units": "words"}, "unknown way to find words 'words'"),
        ({"pairs": []}, "got 0 of 0"),
        ({"reverse": "itself"}, "the reverse of a model zh → en must be one en → zh, got zh → en"),
        ({"gold": ["0-0", "0-0"]}, "one line of gold links for each pair, got 2 for 1"),
        ({"gold": ["0-0 2-0"]}, "gold links of pair 1: links must join words 0 … 1 to words 0 … 0, got 2-0"),
    ],
)
def test_mistakes_are_explained(change, message):
    translator = make_translator(make_model())
    given = {"pairs": [("a b", "c")], **change}
    given |= {"reverse": translator} if "reverse" in given else {}
    given |= {"gold": read_gold(given["gold"], "gold")} if "gold" in given else {}
    with pytest.raises(ValueError, match=message):
        align(translator, **given)


@pytest.mark.usefixtures("unchecked")
def test_gold_links_as_text_are_refused(learned):
    translator, pairs = learned
    with pytest.raises(ValueError, match=r"gold links of pair 1 must be Gold\(sure, possible\), got '0-0 1-1'"):
        align(translator, pairs[:1], gold=["0-0 1-1"])

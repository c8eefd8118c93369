"""Pieces become words in any script, and what words looked at adds up."""

from dataclasses import replace

import pytest
import torch

from regard.trace.attention import GivenAttention
from regard.trace.attention_map import mean_relative_entropy
from regard.trace.external import trace_from_attention
from regard.trace.head_choice import HeadChoice
from regard.trace.summary import cross_word_attention, group_words, summarise
from tests.trace.makers import make_model, one_trace


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ("▁In tro du cing ▁X i ' an </s>", "Introducing Xi'an </s>"),
        ("▁ 介绍 一下 西 安 </s>", "介绍 一下 西 安 </s>"),
        ("▁他 是 我的 朋友 。", "他 是 我的 朋友 。"),
        ("▁he ' s ▁my ▁friend .", "he's my friend ."),
        ("▁well - known ▁( 3.1 4 ) !", "well-known ( 3.14 ) !"),
        ("▁我 用 Py Torch 写 代码", "我 用 PyTorch 写 代码"),
        ("▁3 . 14 , ▁ ok", "3.14 , ok"),
        ("<s> ▁ab c <unk> ▁d", "<s> abc <unk> d"),
        ("a", "a"),
    ],
)
def test_pieces_become_words(pieces, words):
    found = group_words(pieces.split())
    assert [word.text for word in found] == words.split()
    assert [place for word in found for place in word.indices] == list(range(len(pieces.split())))


def test_bytes_become_characters():
    found = group_words(["▁a", "<0xE9>", "<0xBE>", "<0x98>", "<0xE4>", "<0xBD>", "<0xA0>", "好"])
    assert [(word.text, len(word.indices)) for word in found] == [("a", 1), ("龘", 3), ("你", 3), ("好", 1)]
    assert group_words(["<0xE9>"])[0].text == "�"
    assert group_words(["▁"])[0].text == "␣"
    assert group_words([]) == []


def cross_trace(weights, source, target):
    """Makes a trace with one layer of cross attention."""
    trace = trace_from_attention((GivenAttention("cross", 0, weights),), source, ["<s>", *target[:-1]])
    steps = tuple(replace(step, piece=piece) for step, piece in zip(trace.steps, target, strict=True))
    return replace(trace, steps=steps)


def test_shares_of_pieces_are_added_and_rows_averaged():
    weights = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.7, 0.2], [0.0, 0.0, 1.0]])
    seen = cross_word_attention(cross_trace(torch.stack([weights, weights]), ["▁ab", "c", "</s>"], ["▁x", "y", "</s>"]))
    assert ([word.text for word in seen.source], [word.text for word in seen.output]) == (["abc", "</s>"], ["xy"])
    torch.testing.assert_close(torch.from_numpy(seen.shares), torch.tensor([[0.75, 0.25]]))


def test_the_mean_is_over_heads_and_layers():
    trace = one_trace(make_model(n_decoder_layers=2))
    seen = cross_word_attention(trace)
    expected = torch.cat([look.weights() for look in trace.cross]).mean(0)
    columns = [list(word.indices) for word in seen.source]
    by_word = torch.stack([expected[:, places].sum(1) for places in columns], dim=1)
    rows = torch.stack([by_word[list(word.indices)].mean(0) for word in seen.output])
    torch.testing.assert_close(torch.from_numpy(seen.shares), rows)
    torch.testing.assert_close(torch.from_numpy(seen.shares).sum(1), torch.ones(len(rows), dtype=torch.float64))


@pytest.mark.parametrize(
    "choice", [HeadChoice(1, 0, "say"), HeadChoice(0, None, "read"), HeadChoice(None, None, "read")]
)
def test_words_have_the_row_that_wrote_them_whatever_the_choice(choice):
    heads = torch.rand(2, 2, 3, 3, generator=torch.Generator().manual_seed(1))  # (L, H, T, S)
    trace = cross_trace(heads[0], ["▁ab", "c", "</s>"], ["▁x", "▁y", "</s>"])
    trace = replace(trace, attention=tuple(GivenAttention("cross", layer, each) for layer, each in enumerate(heads)))
    chosen = heads[choice.layer, choice.head] if choice.head is not None else heads[[0, 1][: 2 - (choice.layer == 0)]]
    rows = chosen if choice.head is not None else chosen.mean((0, 1))
    rows = rows[:2]
    seen = cross_word_attention(trace, choice)
    torch.testing.assert_close(torch.from_numpy(seen.shares), torch.stack([rows[:, :2].sum(1), rows[:, 2]], dim=1))
    assert seen.heads == summarise(trace, choice).heads == str(replace(choice, at="say"))


def test_a_word_of_an_unfinished_output_has_the_row_that_wrote_it():
    weights = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.7, 0.2]])
    seen = cross_word_attention(
        cross_trace(weights[None], ["▁a", "▁b", "</s>"], ["▁x", "▁y"]), HeadChoice(0, 0, "read")
    )
    torch.testing.assert_close(torch.from_numpy(seen.shares), weights)


def test_a_summary_says_what_each_word_looked_at_most():
    trace = one_trace(make_model(), "bad cab")
    summary = summarise(trace)
    assert (summary.text, summary.output) == (trace.text, trace.output)
    assert sum(word.log_prob for word in summary.words) == pytest.approx(
        sum(step.log_prob for step in trace.steps if step.piece != "</s>")
    )
    for word in summary.words:
        shares = [each.share for each in word.looked_at]
        assert shares == sorted(shares, reverse=True)
    assert [(each.kind, each.layer, len(each.heads)) for each in summary.spread] == [
        (look.kind, look.layer, 2) for look in trace.attention
    ]
    assert summary.checks == trace.check()


def test_spread_is_0_for_one_key_and_1_for_all_that_are_allowed():
    causal = torch.ones(4, 4).tril()
    even, one = causal / causal.sum(-1, keepdim=True), torch.eye(4)
    found = mean_relative_entropy(GivenAttention("decoder", 0, torch.stack([even, one])))
    torch.testing.assert_close(torch.from_numpy(found), torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert mean_relative_entropy(GivenAttention("decoder", 0, torch.ones(1, 1, 1))).tolist() == [0.0]


def test_a_trace_without_cross_attention_has_no_words_that_look():
    trace = trace_from_attention((GivenAttention("encoder", 0, torch.eye(2)[None]),), ["a", "b"], [])
    assert summarise(trace).words == []
    with pytest.raises(ValueError, match=r"looking across needs cross attention, and Trace\('' .* has none"):
        cross_word_attention(trace)

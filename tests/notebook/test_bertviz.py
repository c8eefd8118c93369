"""BertViz's names: what they take, what they show, and what they refuse."""

import json
import re
from urllib.parse import parse_qs

import bertviz
import numpy as np
import pytest
import torch

import regard
from regard.notebook.display import labelled_weights, lines_picture, maps_picture, run_picture
from regard.trace.summary import cross_word_attention
from tests.plot.seen import words_in

WORDS = ["the", "cat", "sat"]
PIECES = ["The", "Ġcat", "s", "Ġsat"]


def weights(heads=2, queries=3, keys=3, seed=0):
    return torch.randn(1, heads, queries, keys, generator=torch.Generator().manual_seed(seed)).softmax(-1)


def causal(heads=2, n=4):
    scores = torch.randn(1, heads, n, n, generator=torch.Generator().manual_seed(0))
    return scores.masked_fill(~torch.ones(n, n).tril().bool(), -torch.inf).softmax(-1)


def chosen(shown):
    """Reads what is shown at first."""
    return {key: value for key, (value,) in parse_qs(shown.address, keep_blank_values=True).items()}


@pytest.mark.parametrize("view", ["head_view", "model_view"])
@pytest.mark.parametrize("form", ["trace", "to_hf", "bertviz", "tuples"])
def test_all_forms_show_the_same_numbers(trace, displayed, view, form):
    """Ours, what Hugging Face's models give, and the very arguments that BertViz takes."""
    hf = trace.to_hf()
    sides = {"encoder_tokens": hf.encoder_tokens, "decoder_tokens": hf.decoder_tokens}
    stacks = {f"{kind}_attention": getattr(hf, f"{kind}_attentions") for kind in ("encoder", "decoder", "cross")}
    given = {
        "trace": ((trace,), {}),
        "to_hf": ((hf,), {}),
        "bertviz": ((), hf.bertviz()),
        "tuples": ((), {**stacks, **sides}),
    }
    args, named = given[form]
    assert getattr(regard, view)(*args, **named) is None
    (shown,) = displayed
    for kind, padded in {"encoder": (0, None), "decoder": (1, -1), "cross": (1, None)}.items():
        first, last = padded if form == "bertviz" else (0, None)
        for ours, theirs in zip(getattr(shown.trace, kind), getattr(trace, kind), strict=True):
            weights = ours.weights()[:, first:, :last]
            torch.testing.assert_close(weights.float(), theirs.weights().float(), rtol=0, atol=0)
    assert (shown.trace.source, shown.trace.target[form == "bertviz" :]) == (trace.source, trace.target)
    assert form in {"bertviz", "tuples"} or shown.trace.read == trace.read
    assert chosen(shown)["kind"] == "cross" and chosen(shown)["unit"] == ("word" if form == "trace" else "piece")


# BertViz leaves its own scripts open.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_numbers_are_those_that_bertviz_draws(trace, displayed):
    named = trace.to_hf().bertviz()
    page = bertviz.head_view(**named, html_action="return").data
    drawn = json.loads(re.search(r"const params = (\{.*?\}); // HACK", page)[1])["attention"]
    regard.head_view(**named)
    for block in drawn:
        looks = [look for look in displayed[0].trace.attention if look.kind == block["name"].lower()]
        ours = np.stack([look.weights().numpy() for look in looks])
        np.testing.assert_array_equal(np.array(block["attn"], dtype=np.float32), ours)


def test_layer_and_heads_are_those_shown_at_first(trace, displayed):
    regard.head_view(trace, layer=1, heads=[1])
    assert chosen(displayed[0]) == {
        "view": "attention",
        "form": "lines",
        "kind": "cross",
        "layer": "1",
        "off": "0",
        "unit": "word",
    }
    regard.model_view(trace, display_mode="dark")
    assert chosen(displayed[1])["form"] == "all" and chosen(displayed[1])["theme"] == "dark"
    regard.model_view(trace)
    assert "theme" not in chosen(displayed[2]), "a notebook says itself whether it is dark"


def test_words_without_marks_are_shown_as_words(displayed):
    regard.head_view([weights(), weights(seed=1)], WORDS)
    (shown,) = displayed
    assert chosen(shown)["unit"] == "word" and chosen(shown)["kind"] == "encoder"
    assert shown.trace.text == "the cat sat" and len(shown.trace.encoder) == 2
    assert words_in(lines_picture(shown.trace, "encoder", 0, [0, 1], "word")).count("cat") == 2


def test_marks_of_other_tokenizers_are_known_and_may_be_left(displayed):
    regard.head_view([causal()], PIECES)
    regard.head_view([causal()], PIECES, prettify_tokens=False)
    pretty, plain = displayed
    assert pretty.trace.read == ("The", "▁cat", "s", "▁sat") and plain.trace.read == tuple(PIECES)
    assert chosen(pretty)["unit"] == chosen(plain)["unit"] == "piece"


def test_tokens_that_never_look_ahead_are_a_decoder_s(displayed):
    regard.model_view([causal()], PIECES)
    regard.model_view([causal().flip(-1)], PIECES)
    regard.model_view([torch.ones(1, 1, 1, 1)], ["one"])
    assert [chosen(shown)["kind"] for shown in displayed] == ["decoder", "encoder", "encoder"]


def test_rows_across_bear_the_names_that_were_given(displayed):
    regard.head_view(cross_attention=[weights(2, 2, 3)], encoder_tokens=WORDS, decoder_tokens=["chat", "assis"])
    assert displayed[0].trace.target == ("▁chat", "▁assis")


def test_the_first_layers_may_be_asked_for(displayed):
    regard.head_view([weights()] * 3, WORDS, include_layers=[0, 1])
    assert len(displayed[0].trace.encoder) == 2


@pytest.mark.parametrize("form", [list, tuple, torch.stack, lambda layers: [layer[0] for layer in layers], np.stack])
def test_layers_come_in_any_container(displayed, form):
    layers = [weights(), weights(seed=1)]
    regard.head_view(form(layers), WORDS)
    for look, layer in zip(displayed[0].trace.encoder, layers, strict=True):
        torch.testing.assert_close(look.weights(), layer[0])


def test_pictures_show_what_words_looked_at(trace):
    """The mean over all heads in words must be what the summary says."""
    layers = [labelled_weights(look.weights(), trace, "cross", "word") for look in trace.cross]
    mean = np.stack([each for each, _, _ in layers]).mean((0, 1))
    seen = cross_word_attention(trace)
    np.testing.assert_allclose(mean[: len(seen.output)], seen.shares, rtol=1e-6)
    assert layers[0][1][: len(seen.output)] == [word.text for word in seen.output]
    drawn = words_in(maps_picture(trace, "word"))
    assert {word.text for word in seen.source} <= set(drawn) and "head 1" in drawn


@pytest.mark.parametrize(("n", "lines"), [(40, True), (41, False)])
def test_many_words_are_drawn_as_maps(displayed, n, lines):
    words = [f"w{i}" for i in range(n)]
    regard.head_view(cross_attention=[weights(1, n, n)], encoder_tokens=words, decoder_tokens=words)
    trace = displayed[0].trace
    assert any("which word attends to which" in text for text in words_in(displayed[0].draw())) == lines
    assert any("What each head attends to" in text for text in words_in(run_picture(trace))) != lines


def test_a_page_is_given_back_and_opens_where_it_should(trace, page):
    found = regard.head_view(trace, layer=1, html_action="return")
    assert 'data-address="view=attention&amp;form=lines&amp;kind=cross&amp;layer=1' in found.data
    assert found._repr_html_().startswith('<iframe srcdoc="&lt;html&gt;') and found.data.endswith("</html>")
    (page / "view.html").unlink()
    with pytest.raises(ValueError, match="make page"):
        regard.model_view(trace, html_action="return")


TRACE = "a trace"  # in whose place the fixture stands
WRONG = {
    "no attention": ((), {}, r"cross_attention, got none"),
    "no tokens": (([weights()],), {}, r"^tokens must be given beside attention.*got None"),
    "too few tokens": (([weights()], ["the", "cat"]), {}, r"3 queries, 3 keys\), got 2 and 2 tokens"),
    "two sentences": (([weights().repeat(2, 1, 1, 1)], WORDS), {}, r"attention\[0\] must have .* got \(2, 2, 3, 3\)"),
    "a matrix": (([torch.ones(3, 3)], WORDS), {}, r"must have the shape \(1, heads, queries, keys\).* got \(3, 3\)"),
    "None as HF gives": (([None], WORDS), {}, r"got NoneType"),
    "scores": (([7 * weights() - 3], WORDS), {}, r"weights from 0 to 1, got -"),
    "not a number": (([weights() * torch.nan], WORDS), {}, r"weights from 0 to 1, got nan"),
    "layers of two shapes": (([weights(), weights(3)], WORDS), {}, r"got \[\(2, 3, 3\), \(3, 3, 3\)\]"),
    "no layers": (([], WORDS), {}, r"attention must have layers.* got \[\]"),
    "other layers": (([weights()] * 3, WORDS), {"include_layers": [1, 2]}, r"first of the 3 layers.* got \[1, 2\]"),
    "one stack and two": (
        ([weights()], WORDS),
        {"encoder_attention": [weights()]},
        r"encoder_attention must not stand beside an attention of list, got \[tensor",
    ),
    "tokens of a trace": ((TRACE, WORDS), {}, r"tokens must not stand beside an attention of Trace, got \['the'"),
    "one side across": (
        (),
        {"cross_attention": [weights()], "encoder_tokens": WORDS},
        r"decoder_tokens must be given beside cross_attention",
    ),
    "a layer too many": ((TRACE,), {"layer": 5}, r"cross layer must be 0 … 1, got 5"),
    "a head too many": ((TRACE,), {"heads": [7]}, r"head must lie in 0 … 1.* got 7"),
    "another action": ((TRACE,), {"html_action": "print"}, r"print"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_sense_is_refused(trace, displayed, case):
    args, named, match = WRONG[case]
    args = tuple(trace if each is TRACE else each for each in args)
    with pytest.raises(ValueError, match=match):
        regard.head_view(*args, **named)
    assert not displayed


def test_unknown_light_and_missing_packages_are_refused(trace, without):
    with pytest.raises(ValueError, match="purple"):
        regard.model_view(trace, display_mode="purple")
    without("IPython")
    with pytest.raises(ValueError, match=r"views need IPython.*pip install 'regard\[notebook\]'"):
        regard.head_view(trace)
    with pytest.raises(ValueError, match=r"pages need IPython"):
        regard.head_view(trace, html_action="return")

"""Row t of cross attention is what the model attended to when it wrote token t, wherever weights are shown."""

import json
import sys

import numpy as np
import pytest
import torch

import regard
from regard.cli import main
from regard.notebook.display import labelled_weights
from regard.plot.traces import head_figure
from regard.serve.serialize import make_head, make_view
from regard.trace.head_choice import HeadChoice
from regard.trace.summary import cross_word_attention
from regard.trace.trace import sides
from tests.plot.seen import words_in
from tests.serve.test_serialize import unpack

TEXT = "介绍一下西安"
LAYER, HEAD = 0, 5


@pytest.fixture(scope="module")
def trace():
    return regard.trace(regard.load("zh-en"), TEXT)


@pytest.fixture(scope="module")
def written(trace):
    """Return each written token, and the source token that the head attended to most when it was written."""
    rows = trace.cross[LAYER].weights(HEAD)
    assert len(rows) == len(trace.target)
    return [(token, trace.source[int(row.argmax())]) for token, row in zip(trace.target, rows, strict=True)]


def strongest(rows, columns, weights):
    best = np.asarray(weights).argmax(-1).tolist()
    return [(row, columns[k]) for row, k in zip(rows, best, strict=True)]


def test_a_row_is_computed_before_its_token_is_written(trace):
    """A path that ends with token t has the same row t: what follows changes nothing."""
    steps = trace.tree.path(trace.end_node)
    prefix = trace.at(steps[2].number)
    assert prefix.target == trace.target[:3]
    full = trace.cross[LAYER].weights(HEAD)[:3]
    torch.testing.assert_close(prefix.cross[LAYER].weights(HEAD), full, atol=1e-5, rtol=0)


def test_the_page_s_json_agrees(trace, written):
    head = make_head(trace, "cross", LAYER, HEAD)
    assert strongest(head.queries, head.keys, head.weights) == written
    view = make_view(trace)
    cross = next(kind for kind in view.kinds if kind.kind == "cross")
    assert strongest(view.target.pieces, view.source.pieces, unpack(cross)[LAYER, HEAD]) == written


def test_the_command_agrees(trace, written, capsys, monkeypatch):
    named = ["--head", f"cross:{LAYER}:{HEAD}"]
    monkeypatch.setattr(sys, "argv", ["regard", "trace", TEXT, "--model", "zh-en", "--json", *named])
    with pytest.raises(SystemExit):
        main()
    head = json.loads(capsys.readouterr().out)
    assert strongest(head["queries"], head["keys"], head["weights"]) == written


def test_to_hf_and_bertviz_agree(trace, written):
    hf = trace.to_hf()
    assert strongest(hf.decoder_tokens, hf.encoder_tokens, hf.cross_attentions[LAYER][0, HEAD]) == written
    named = hf.bertviz("cross")
    rows = strongest(named["decoder_tokens"], named["encoder_tokens"], named["cross_attention"][LAYER][0, HEAD])
    assert rows[1:] == written and named["decoder_tokens"][0] == trace.read[0]


def test_figures_agree(trace, written):
    drawn = words_in(head_figure(trace, trace.cross[LAYER], HEAD))
    names = [token.replace("▁", "·") for token, _ in written]
    assert [word for word in drawn if word in names][: len(names)] == names
    assert trace.read[0] not in drawn, "BOS was read, not written"


def test_notebooks_agree(trace, written, monkeypatch):
    weights, rows, columns = labelled_weights(trace.cross[LAYER].weights(), trace, "cross", "piece")
    assert strongest(rows, columns, weights[HEAD]) == written
    displayed = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    regard.head_view(trace.to_hf(), layer=LAYER, heads=[HEAD])
    shown = displayed[0].trace
    assert strongest(*sides(shown, "cross"), shown.cross[LAYER].weights(HEAD)) == written


@pytest.mark.parametrize("at", ["say", "read"])
def test_words_agree(trace, written, at):
    seen = cross_word_attention(trace, HeadChoice(LAYER, HEAD, at))
    weights, rows, columns = labelled_weights(trace.cross[LAYER].weights(), trace, "cross", "word")
    n = len(seen.output)
    expected = strongest(rows[:n], columns, weights[HEAD][:n])
    assert strongest([word.text for word in seen.output], [word.text for word in seen.source], seen.shares) == expected


def test_the_decoder_s_rows_are_named_alike(trace):
    rows, columns = sides(trace, "decoder")
    head = make_head(trace, "decoder", 0, 0)
    hf = trace.to_hf()
    assert rows == trace.target == tuple(head.queries) == tuple(hf.decoder_tokens)
    assert columns == trace.read == tuple(head.keys) == tuple(hf.decoder_inputs)

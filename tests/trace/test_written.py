"""Texts that are written and looked into: the same text, and every head of the decoder."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.plot.traces import FIGURES, head_figure, terms_figure
from regard.trace.generation import trace_generation
from regard.trace.summary import self_word_attention, summarise
from tests.pipeline.writers import make_model, make_writer

METHODS = {
    "greedy": {"method": "greedy"},
    "sample": {"method": "sample", "n_best": 2, "seed": 3},
    "beam": {"method": "beam", "beam": 3, "n_best": 2},
}
RUNS = [*((method, "rotary") for method in METHODS), *(("greedy", name) for name in ("learned", "alibi", "shaw"))]


@pytest.mark.parametrize(("method", "position"), RUNS)
def test_what_is_traced_is_what_is_written(method, position):
    writer = make_writer(make_model(position), **METHODS[method])
    seen = trace_generation(writer, "ab c")
    assert seen.translation == writer.generate("ab c")
    trace = seen.trace
    assert (trace.text, trace.output, trace.source) == ("ab c", seen.text, ())
    assert trace.read[:5] == ("<s>", "a", "b", "▁", "c") and trace.target[:-1] == trace.read[1:]
    assert [(look.kind, look.layer, look.n_heads) for look in trace.attention] == [("decoder", 0, 2), ("decoder", 1, 2)]
    checks = trace.check()
    assert checks.weights < 1e-9 and checks.log_prob < 1e-9
    for look in trace.decoder:
        weights = look.weights()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2], dtype=weights.dtype))
        assert not weights.triu(1).any(), "nobody sees what comes later"
        torch.testing.assert_close(look.terms().terms.sum(0), look.scores(), rtol=1e-6, atol=1e-6)
    assert [(flow.stack, flow.layer, flow.sublayer) for flow in trace.residual_norms] == [
        ("decoder", layer, name) for layer in range(2) for name in ("attention", "feed_forward")
    ]


def test_other_paths_of_the_search_can_be_looked_at():
    writer = make_writer(method="beam", beam=3, n_best=3)
    trace = regard.trace(writer, "a")
    other = trace.at(next(leaf.number for leaf in trace.tree.leaves("ended", "open") if leaf.number != trace.end_node))
    assert other.text == "a" and other.source == () and other.output != trace.output and other.output.startswith("a")


def test_words_look_back_at_what_was_written_before_them():
    trace = regard.trace(make_writer(method="greedy"), "ab cd e")
    seen = self_word_attention(trace)
    shares = torch.from_numpy(seen.shares)
    torch.testing.assert_close(shares.sum(1), torch.ones(len(seen.output), dtype=shares.dtype))
    assert [word.text for word in seen.source][:3] == ["<s>", "ab", "cd"]
    first = torch.stack([look.weights().mean(0) for look in trace.decoder]).mean(0)[:2].mean(0)
    torch.testing.assert_close(shares[0, 0], first[0])
    torch.testing.assert_close(shares[0, 1], first[1:3].sum())
    summary = summarise(trace)
    assert summary.heads == seen.heads == "decoder:all:all"
    assert [word.word for word in summary.words] == [word.text for word in seen.output]


def test_a_trace_is_saved_shown_and_drawn(tmp_path):
    trace = regard.trace(make_writer(method="sample", seed=1), "ab cd")
    trace.save(tmp_path / "trace.safetensors")
    again = regard.load_trace(tmp_path / "trace.safetensors")
    assert (again.text, again.source, again.read, again.steps) == (trace.text, (), trace.read, trace.steps)
    recorded = [(look.q, look.k, look.v) for look in (again.decoder[1], trace.decoder[1])]
    assert all(torch.equal(*each) for each in zip(*recorded, strict=True))
    # A product's last bit may depend on where its factors lie in memory.
    torch.testing.assert_close(again.decoder[1].weights(), trace.decoder[1].weights(), rtol=0.0, atol=1e-15)
    for draw in FIGURES.values():
        assert draw(trace).axes
    assert head_figure(trace, trace.decoder[0], 1).axes and terms_figure(trace, trace.decoder[0], 1).axes
    regard.save_html(trace, tmp_path / "trace.html", "mine")
    assert (tmp_path / "trace.html").stat().st_size > 1000
    assert trace.to_hf().encoder_attentions == () and len(trace.to_hf().decoder_attentions) == 2


def test_the_writer_is_left_as_it_was():
    writer = make_writer(method="greedy")
    before = {name: tensor.clone() for name, tensor in writer.model.state_dict().items()}
    regard.trace(writer, "abc")
    for name, tensor in writer.model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert replace(writer.settings) == writer.settings and not any(m._forward_hooks for m in writer.model.modules())

"""Weights in other people's form, drawn by other people's viewers."""

import json
import re

import bertviz
import pytest
import torch

from tests.trace.makers import make_model, one_trace

# BertViz leaves its own scripts open.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def trace():
    return one_trace(make_model(n_encoder_layers=2), "hello")


def test_weights_come_as_hugging_face_gives_them(trace):
    found = trace.to_hf()
    S, T = len(trace.source), len(trace.read)
    shapes = {"encoder": ((1, 2, S, S), 2), "decoder": ((1, 2, T, T), 1), "cross": ((1, 2, T, S), 1)}
    for kind, (shape, n_layers) in shapes.items():
        layers = getattr(found, f"{kind}_attentions")
        assert [tuple(layer.shape) for layer in layers] == [shape] * n_layers
        assert {layer.dtype for layer in layers} == {torch.float32}
    torch.testing.assert_close(found.cross_attentions[0][0, 1], trace.cross[0].weights(1).float())
    assert (found.encoder_tokens, found.decoder_tokens) == (list(trace.source), list(trace.target))
    assert found.decoder_inputs == list(trace.read)


@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_bertviz_draws_them(trace, view):
    page = getattr(bertviz, view)(**trace.to_hf().bertviz(), html_action="return").data
    data = json.loads(re.search(r"const params = (\{.*?\}); // HACK", page).group(1))
    drawn = {each["name"]: each for each in data["attention"]}
    assert set(drawn) == {"Encoder", "Decoder", "Cross"}
    cross = torch.tensor(drawn["Cross"]["attn"])
    torch.testing.assert_close(cross[0, :, 1:], trace.cross[0].weights().float())
    decoder = torch.tensor(drawn["Decoder"]["attn"])
    torch.testing.assert_close(decoder[0, :, 1:, :-1], trace.decoder[0].weights().float())
    for rest in (cross[0, :, 0], decoder[0, :, 0], decoder[0, :, :, -1]):
        assert not rest.any(), "BOS was not written, and the last token was not read"
    assert len(drawn["Cross"]["left_text"]) == len(trace.target) + 1
    assert len(drawn["Encoder"]["attn"]) == 1, "BertViz can draw as many layers as the shallowest stack has"


def test_bertviz_draws_a_deeper_stack_by_itself(trace):
    page = bertviz.head_view(**trace.to_hf().bertviz("encoder"), html_action="return").data
    (drawn,) = json.loads(re.search(r"const params = (\{.*?\}); // HACK", page).group(1))["attention"]
    assert len(drawn["attn"]) == 2
    with pytest.raises(ValueError, match="unknown kind of attention 'self'"):
        trace.to_hf().bertviz("self")


def test_bertviz_draws_the_gru_s_alignment():
    alignment = one_trace(make_model("recurrent", "none", "additive", n_heads=1)).to_hf()
    assert not alignment.encoder_attentions and not alignment.decoder_attentions
    assert "Cross" in bertviz.head_view(**alignment.bertviz(), html_action="return").data


def test_inspectus_takes_them(trace):
    inspectus = pytest.importorskip("inspectus")
    found = trace.to_hf()
    tokens = found.decoder_tokens, found.encoder_tokens
    assert inspectus.attention(list(found.cross_attentions), *tokens) is None

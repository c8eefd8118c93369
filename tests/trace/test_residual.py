"""Step by step through a layer one arrives where the layer does.

The stream that is written down is the stream that runs.
"""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from regard.batch import make_batch
from regard.padding import BOS, EOS
from regard.study.no_residuals import without_residuals
from regard.trace.residual import encoder_stages, record_streams
from tests.trace.makers import PAIRS, SCHEMES, make_model, one_trace

pytestmark = pytest.mark.filterwarnings("ignore:position 'index' with pre-norm is the same as none")

IDS = [5, 7, 6, 9, 5]


@pytest.mark.parametrize(("attention", "scheme"), PAIRS)
def test_the_last_step_is_what_the_layer_puts_out(attention, scheme):
    for place in ("before", "after"):
        model = make_model(scheme=scheme, attention=attention, norm_place=place, n_encoder_layers=2)
        for layer in (0, 1):
            found = encoder_stages(model, IDS, layer, 1)
            assert found.error < 1e-9 and found.norm_first == (place == "before")
            assert found["weights"].shape == (len(IDS) + 1, len(IDS) + 1)


def test_every_step_follows_from_those_before():
    model = make_model(norm_place="before")
    seen = encoder_stages(model, IDS, 0, 0)
    first = model.encoder.layers[0]
    assert [stage.name for stage in seen.stages][:4] == ["token", "position", "input", "normed"]
    torch.testing.assert_close(seen["input"], seen["token"] + seen["position"])
    torch.testing.assert_close(seen["normed"], first.after_attention.norm.float()(seen["input"]))
    width = seen["query"].shape[1]
    torch.testing.assert_close(seen["scores"], seen["query"] @ seen["key"].T / width**0.5)
    torch.testing.assert_close(seen["weights"], seen["scores"].softmax(-1))
    torch.testing.assert_close(seen["mixed"], seen["weights"] @ seen["value"])
    torch.testing.assert_close(seen["attention_sum"], seen["input"] + seen["projected"])
    torch.testing.assert_close(seen["output"], seen["attention_out"] + seen["outer"])


def test_weights_are_those_of_a_trace():
    model = make_model(n_encoder_layers=2, dtype=torch.float32)
    trace = one_trace(model, "bad cab")
    ids = [4, 5]
    seen = encoder_stages(model, ids, 1, 1)
    assert seen["weights"].shape == (3, 3) and trace.encoder[1].weights(1).shape[0] == len(trace.source)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_scheme_is_named_as_in_the_table(scheme):
    assert encoder_stages(make_model(scheme=scheme), IDS, 0, 0).scheme == SCHEMES[scheme].name


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"layer must lie in 0 … 0, got 3"):
        encoder_stages(make_model(), IDS, 3, 0)
    with pytest.raises(ValueError, match=r"head must lie in 0 … 1, got 2"):
        encoder_stages(make_model(), IDS, 0, 2)
    with pytest.raises(ValueError, match="Recurrent"):
        encoder_stages(make_model("recurrent"), IDS, 0, 0)


SRC = [[5, 6, 7, 8], [9, 5], [4, 4, 6]]
TGT = [[8, 9, 10], [5], [7, 6, 5, 4]]


def one_sentence(stream, number):
    rows = stream.tokens.sentences == number
    return rows, stream.tokens.ids[rows].tolist(), stream.tokens.positions[rows].tolist()


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary"])
def test_a_sublayer_s_update_is_what_lies_between_two_points(scheme):
    streams = record_streams(make_model(scheme=scheme, norm_place="before", n_encoder_layers=2), SRC, TGT)
    for stream in streams.values():
        places = list(stream.before)
        after = [stream.before[place] for place in places[1:]] + [stream.last]
        for place, following in zip(places, after, strict=True):
            assert_close(stream.before[place] + stream.updates[place], following)
    assert list(streams["encoder"].points()) == ["embedding", "layer 0", "layer 1"]
    assert list(streams["decoder"].before) == [(0, "attention"), (0, "cross_attention"), (0, "feed_forward")]


def test_without_residuals_the_update_is_the_stream():
    streams = record_streams(without_residuals(make_model(norm_place="before")), SRC, TGT)
    for stream in streams.values():
        places = list(stream.before)
        for place, following in pairwise(places):
            assert_close(stream.updates[place], stream.before[following])
        assert_close(stream.updates[places[-1]], stream.last)


def test_tokens_are_those_of_the_text_and_padding_is_none():
    model = make_model(norm_place="before")
    streams = record_streams(model, SRC, TGT)
    for number, (src, tgt) in enumerate(zip(SRC, TGT, strict=True)):
        assert one_sentence(streams["encoder"], number)[1:] == ([*src, EOS], list(range(len(src) + 1)))
        assert one_sentence(streams["decoder"], number)[1:] == ([BOS, *tgt], list(range(len(tgt) + 1)))
        alone = make_batch([src], [tgt])
        rows = one_sentence(streams["encoder"], number)[0]
        assert_close(streams["encoder"].before[0, "attention"][rows], model.src(alone.src.ids, alone.src.positions)[0])
        assert_close(model.encoder.last_norm(streams["encoder"].last[rows]), model.encode(alone.src)[0])
        rows = one_sentence(streams["decoder"], number)[0]
        assert_close(model.decoder.last_norm(streams["decoder"].last[rows]), model.features(alone)[0])


def test_the_model_is_not_touched():
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    record_streams(model, SRC, TGT)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_recurrent_model_has_no_stream():
    with pytest.raises(ValueError, match="only a Transformer has a residual stream to look at, got Recurrent"):
        record_streams(make_model("recurrent", "none", n_heads=1), SRC, TGT)

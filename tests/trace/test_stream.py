"""The stream that is written down is the stream that runs."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from regard.batch import BOS, EOS, make_batch
from regard.study.bare import without_residuals
from regard.trace.stream import record_streams

from .makers import make_model

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
        assert_close(model.encoder.last_norm(streams["encoder"].last[rows]), model.read(alone.src)[0])
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

"""Step by step through a layer one arrives where the layer does."""

import pytest
import torch

from regard.trace.stages import encoder_stages

from .makers import PAIRS, SCHEMES, make_model, one_trace

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

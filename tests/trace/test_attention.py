"""What a look shows is what the attention computes, one head at a time."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from regard.attention import ATTENTION, Attention, ScaledDot
from regard.batch import make_batch
from regard.trace import attention as recorded
from regard.trace.attention import GivenAttention, RecordedAttention
from regard.trace.replay import replay
from tests.parts import MASKS, H, K, Q, dense, exactly, key_width, make_attention, make_bias, make_inputs, noise
from tests.trace.makers import MODELS, PAIRS, make_model

SOURCE, SAID = [5, 6, 7, 8, 9], [6, 4, 9, 3]


def make_look(name="scaled_dot", mask="everything", bias="no bias"):
    """Makes a look at one sequence by hand, with what the attention puts out."""
    attention, (q, k, v) = make_attention(name).eval(), (x[:1] for x in make_inputs(name))
    rule, added = _first(MASKS[mask](Q, K)), make_bias(bias)
    added = None if added is None else added[:1]
    out = attention(q, k, v, rule, added).detach()
    return RecordedAttention("cross", 0, attention, q[0], k[0], v[0], rule, None if added is None else added[0], out[0])


def _first(mask):
    """Cuts a mask to its first sequence."""
    cut = {
        name: None if getattr(mask, name) is None else getattr(mask, name)[:1]
        for name in ("key_lengths", "query_lengths", "allowed")
    }
    return replace(mask, **cut)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ATTENTION)
def test_weights_times_values_are_the_output_and_empty_rows_are_zero(name, mask):
    look = make_look(name, mask, "full bias")
    weights = look.weights()
    allowed = dense(MASKS[mask](Q, K))[0]
    assert weights.shape == (H, Q, K)
    assert not weights[~allowed].any()
    assert not weights[~allowed.any(-1)].any() and not look.output()[~allowed.any(-1)].any()
    torch.testing.assert_close(weights.sum(-1), allowed.any(-1).double())
    torch.testing.assert_close(look.output(), look.out)
    assert look.error() < 1e-12
    assert torch.equal(torch.stack([look.allowed(head) for head in range(H)]), allowed)
    exactly(look.weights(1), weights[1])
    exactly(look.output(1), look.output()[1])


@pytest.mark.parametrize("name", ATTENTION)
def test_scores_come_with_their_bias_and_without(name):
    look = make_look(name, bias="bias per head and key")
    plain, whole = look.scores(bias=False), look.scores()
    torch.testing.assert_close(plain, look.attention.scores(look.q[None], look.k[None])[0])
    torch.testing.assert_close(whole, plain + look.bias)
    torch.testing.assert_close(whole.softmax(-1), look.weights())
    exactly(look.scores(1, bias=False), plain[1])


@pytest.mark.parametrize("name", ATTENTION)
def test_rows_come_in_blocks(name, monkeypatch):
    look = make_look(name, "all rules", "full bias")
    at_once = look.weights(), look.scores()
    monkeypatch.setattr(recorded, "BLOCK_ELEMENTS", 2 * K * max(look.q.shape[-1], key_width(name)))
    assert [len(rows) for rows in look._blocks()] == [2, 2, 1]
    for seen, expected in zip((look.weights(), look.scores()), at_once, strict=True):
        torch.testing.assert_close(seen, expected)


def test_one_head_materialises_one_head(monkeypatch):
    look, built = make_look(), []
    plain = ScaledDot.scores

    def counted(self, q, k):
        built.append(tuple(q.shape[:2]))
        return plain(self, q, k)

    monkeypatch.setattr(ScaledDot, "scores", counted)
    look.weights(2)
    assert built == [(1, 1)]
    look.weights()
    assert built == [(1, 1)] * (1 + H)


def test_recording_materialises_nothing(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("nobody has asked to see anything yet")

    model = make_model()
    with monkeypatch.context() as patch:
        patch.setattr(Attention, "weights", forbidden)
        patch.setattr(ScaledDot, "scores", forbidden)
        seen = replay(model, SOURCE, SAID)
    assert [(look.kind, look.layer) for look in seen.attention] == [("encoder", 0), ("decoder", 0), ("cross", 0)]
    assert all(look.error() < 1e-12 for look in seen.attention)


@pytest.mark.parametrize(("attention", "scheme"), PAIRS, ids=["-".join(parts) for parts in PAIRS])
def test_on_every_path_weights_times_values_are_the_layer_s_output(attention, scheme):
    """The layer's output is heard at the model itself, by a hook of the test's own."""
    model = make_model(scheme=scheme, attention=attention)
    layers = {
        "encoder": model.encoder.layers[0].attention,
        "decoder": model.decoder.layers[0].attention,
        "cross": model.decoder.layers[0].cross_attention,
    }
    heard = {}
    for kind, layer in layers.items():
        layer.w_o.register_forward_pre_hook(lambda module, args, kind=kind: heard.__setitem__(kind, args[0]))
    with torch.no_grad():
        model(make_batch([SOURCE], [SAID[:-1]]))
    for look in replay(model, SOURCE, SAID).attention:
        torch.testing.assert_close(look.output().transpose(0, 1).flatten(1), heard[look.kind][0])
        assert look.error() < 1e-12
        assert (look.extra is not None) == (scheme == "shaw with values" and look.kind != "cross")
        assert look.terms(0).error < 1e-10


@pytest.mark.parametrize(("family", "scheme"), [each for each in MODELS if each[1] in {"none", "sinusoidal"}])
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("state_norm", ["none", "layer"])
def test_the_gru_s_alignment_is_one_head_over_all_steps(family, scheme, attention, state_norm):
    model = make_model("recurrent", scheme, attention, n_heads=1, n_decoder_layers=2, state_norm=state_norm)
    seen = replay(model, SOURCE, SAID)
    (look,) = seen.attention
    assert (look.kind, look.sizes, seen.residual_norms) == ("cross", (1, len(SAID), len(SOURCE) + 1), ())
    assert look.error() < 1e-12
    torch.testing.assert_close(look.weights().sum(-1), torch.ones(1, len(SAID), dtype=torch.float64))


def test_the_stream_is_measured_around_each_sub_layer():
    for place in ("before", "after"):
        model = make_model(norm_place=place, n_encoder_layers=2)
        flows = replay(model, SOURCE, SAID).residual_norms
        assert [(flow.stack, flow.layer, flow.sublayer) for flow in flows] == [
            *(("encoder", n, name) for n in range(2) for name in ("attention", "feed_forward")),
            *(("decoder", 0, name) for name in ("attention", "cross_attention", "feed_forward")),
        ]
        batch = make_batch([SOURCE], [SAID[:-1]])
        with torch.no_grad():
            x = model.src(batch.src.ids, batch.src.positions)
            h = model.encoder.layers[0].after_attention.norm(x) if place == "before" else x
            update = model.encoder.layers[0].attention.self_attend(h, None, batch.src.positions)[0]
            after = x + update if place == "before" else model.encoder.layers[0].after_attention.norm(x + update)
        for seen, expected in zip((flows[0].before, flows[0].update, flows[0].after), (x, update, after), strict=True):
            torch.testing.assert_close(seen, expected[0].norm(dim=-1))
        for one, other in pairwise(flows[: 2 * 2]):
            exactly(one.after, other.before)


def test_entropy_is_0_for_one_key_and_log_n_for_all_alike():
    given = torch.stack([torch.eye(4), torch.full((4, 4), 0.25)])
    entropy = GivenAttention("encoder", 0, given).entropy()
    torch.testing.assert_close(entropy, torch.tensor([[0.0] * 4, [torch.tensor(4.0).log()] * 4]))
    assert not GivenAttention("encoder", 0, torch.zeros(1, 2, 3)).entropy().any()


def test_given_weights_know_nothing_else():
    look = GivenAttention("decoder", 3, noise(2, 5, 7, seed=1).softmax(-1))
    exactly(look.weights(1), look.weights()[1])
    assert torch.isnan(torch.tensor(look.error()))
    assert look.allowed(0).all()
    for ask in (look.scores, look.output, look.terms):
        with pytest.raises(ValueError, match="of decoder layer 3 only weights were given"):
            ask()


def test_a_head_that_is_not_there_is_refused():
    for look in (make_look(), GivenAttention("cross", 0, torch.ones(H, Q, K))):
        with pytest.raises(ValueError, match=r"head must lie in 0 … 2 of cross layer 0, got 3"):
            look.weights(3)
        with pytest.raises(ValueError, match="got -1"):
            look.weights(-1)
    assert repr(make_look()) == f"AttentionMap(cross layer 0: {H} heads, {Q} queries, {K} keys)"

"""What circulates about attention and is wrong: one test for each line of docs/errata.md that no other file has."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import ScaledDot
from regard.batch import make_batch
from regard.build import build_heads, build_model
from regard.config import HeadsSettings, ModelSettings
from regard.model import MultiHeadAttention
from regard.model.multihead import split_heads
from regard.model.norm import LayerNorm
from regard.study.complexity_layers import LAYERS, count, measure_depth
from tests.parts import noise

SMALL = ModelSettings(n_encoder_layers=2, n_decoder_layers=2, d_model=8, n_heads=2, d_ff=8, dropout=0.0)


def test_a_head_is_d_model_over_h_wide():
    layer = build_heads(HeadsSettings(d_model=512, n_heads=8))
    assert split_heads(layer.w_q(torch.zeros(1, 3, 512)), 8).shape == (1, 8, 3, 64)


def test_scaled_dot_has_no_tanh_around_its_output():
    v = torch.full((1, 1, 1, 5), 1000.0)
    assert_close(ScaledDot()(torch.ones(1, 1, 2, 5), torch.ones(1, 1, 1, 5), v), v.expand(1, 1, 2, 5))


def test_scaled_dot_has_the_root_of_the_width_inside_the_softmax():
    q, k = noise(1, 1, 3, 7, seed=0), noise(1, 1, 5, 7, seed=1)
    expected = torch.softmax(q @ k.transpose(-1, -2) / 7**0.5, dim=-1)
    assert_close(ScaledDot().weights(q, k), expected)


def test_there_is_one_value_for_each_key_not_for_each_query():
    q, k = torch.ones(1, 1, 3, 7), torch.ones(1, 1, 5, 7)
    with pytest.raises(ValueError, match=r"one value for each key, got .* v \(1, 1, 3, 7\)"):
        ScaledDot()(q, k, torch.ones(1, 1, 3, 7))


def test_queries_keys_and_values_are_linear_in_the_inputs_and_weights_are_not():
    layer = build_heads(HeadsSettings(d_model=6, n_heads=2)).double()
    x, y = noise(1, 4, 6, seed=0), noise(1, 4, 6, seed=1)
    for projection in (layer.w_q, layer.w_k, layer.w_v):
        assert_close(projection(x + y) + projection(0 * x), projection(x) + projection(y))
    weights = layer.attention.weights(*(split_heads(w(x), 2) for w in (layer.w_q, layer.w_k)))
    assert_close(weights.sum(dim=-1), torch.ones(1, 2, 4, dtype=torch.float64))


def test_self_attention_costs_n_squared_d_recurrence_n_d_squared_and_convolution_k_n_d_squared():
    n, d, k = 5, 7, 3
    terms = {"attention": 4 * n**2 * d, "recurrence": 12 * n * d**2, "convolution": 2 * k * n * d**2}
    for name, operations in terms.items():
        assert count(LAYERS[name].make(d, k), n, d) == operations


def test_the_path_is_one_in_attention_n_in_a_recurrence_and_n_over_k_in_a_convolution():
    n, k = 13, 4
    found = {name: measure_depth(name, n, k) for name in ("attention", "recurrence", "convolution")}
    assert {name: depth.path for name, depth in found.items()} == {
        "attention": 1,
        "recurrence": n,
        "convolution": n // 3,
    }
    assert {name: depth.steps for name, depth in found.items()} == {"attention": 1, "recurrence": n, "convolution": 1}


def test_a_decoder_looks_back_and_across_and_never_ahead():
    torch.manual_seed(0)
    model = build_model(SMALL, (11, 11)).double()
    batch = make_batch([[4, 5, 6]], [[7, 8, 9, 10]])
    vectors: dict[str, torch.Tensor] = {}

    def keep(name):
        def hook(module, given, out):
            vectors[name] = out
            out.retain_grad()

        return hook

    model.src.register_forward_hook(keep("src"))
    model.tgt.register_forward_hook(keep("tgt"))
    for place in range(5):
        model(batch)[0, place].square().sum().backward()
        of_target, of_source = (vectors[name].grad[0].abs().sum(dim=-1) > 0 for name in ("tgt", "src"))
        assert of_target.tolist() == [at <= place for at in range(5)]
        assert of_source.all()


def test_a_decoder_layer_has_two_attentions_and_an_encoder_layer_one():
    model = build_model(SMALL, (11, 11))
    for stack, n in ((model.encoder, 1), (model.decoder, 2)):
        for layer in stack.layers:
            assert sum(isinstance(module, MultiHeadAttention) for module in layer.modules()) == n


def test_layer_norm_is_over_the_features_of_each_place():
    x, norm = noise(3, 5, 7, seed=0), LayerNorm(7).double()
    found = norm(x)
    assert_close(found.mean(dim=-1), torch.zeros(3, 5, dtype=torch.float64), atol=1e-6, rtol=0)
    assert_close(found.var(dim=-1, unbiased=False), torch.ones(3, 5, dtype=torch.float64), atol=1e-3, rtol=0)
    for b in range(3):
        for t in range(5):  # neither the batch nor the rest of the sentence, however long, takes part
            assert_close(norm(x[b, t][None, None])[0, 0], found[b, t])

"""What circulates about attention and is wrong: one test for each line of docs/errata.md that no other file has."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import Dot, ScaledDot
from regard.batch import make_batch
from regard.build import build_heads, build_model
from regard.config import HeadsSettings, ModelSettings, PartSettings
from regard.model import MultiHeadAttention
from regard.model.multihead import split_heads
from regard.model.norm import LayerNorm
from regard.position import NoPosition, Sinusoidal
from regard.study.complexity_layers import LAYERS, count, measure_depth
from tests.parts import noise


@torch.no_grad()
def attend(layer, x, at):
    """Lets a sequence attend to itself."""
    return layer.self_attend(x, None, at)[0]


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


@pytest.mark.parametrize("width", [4, 64, 1024])
def test_dividing_by_the_root_of_the_width_shrinks_the_range_of_products(width):
    q, k = noise(1, 1, 50, width, seed=0), noise(1, 1, 50, width, seed=1)
    plain, scaled = Dot().scores(q, k), ScaledDot().scores(q, k)
    ranges = [float(scores.max() - scores.min()) for scores in (plain, scaled)]
    assert ranges[1] == pytest.approx(ranges[0] / width**0.5)
    assert ranges[1] < ranges[0] and float(scaled.std()) == pytest.approx(1.0, abs=0.1)


def test_a_second_softmax_around_the_output_would_forget_what_values_say():
    """The output is concat(αV)W, in which values keep sign and size; a softmax makes positive shares of 1 of them."""
    q, k, v = noise(1, 2, 3, 7, seed=0), noise(1, 2, 5, 7, seed=1), 10 * noise(1, 2, 5, 7, seed=2)
    output = ScaledDot()(q, k, v).transpose(1, 2).flatten(2)  # heads beside each other
    assert_close(ScaledDot()(q, k, 2 * v).transpose(1, 2).flatten(2), 2 * output)
    assert float(output.min()) < -1.0 and float(output.max()) > 1.0
    twice = output.softmax(dim=-1)
    assert_close(twice.sum(dim=-1), torch.ones(1, 3, dtype=torch.float64))
    assert_close((output + 5.0).softmax(dim=-1), twice)  # a constant added to all features is lost


def test_positions_are_for_attention_which_does_not_see_order_and_a_recurrence_does():
    """A layer of attention permutes its outputs with its inputs; a GRU without any code gives others."""
    x, order = noise(1, 6, 8, seed=0), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.manual_seed(0)
    layer, recurrence = build_heads(HeadsSettings(d_model=8, n_heads=2)).double(), torch.nn.GRU(8, 8, batch_first=True)
    at = torch.arange(6)[None]
    assert_close(attend(layer, x[:, order], at), attend(layer, x, at)[:, order])
    states, shuffled = (recurrence.double()(given)[0].detach() for given in (x, x[:, order]))
    assert float((shuffled - states[:, order]).abs().max()) > 0.1


def test_positions_are_of_sequences_and_a_set_has_none():
    """On data without an order codes make equal sets unequal: the mean of the outputs then depends on the listing."""
    x, order = noise(1, 6, 8, seed=0), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.manual_seed(0)
    layer, codes = build_heads(HeadsSettings(d_model=8, n_heads=2)).double(), Sinusoidal(8)
    places = torch.arange(6)[None]

    def of_set(given, position):
        return attend(layer, position.embed(given, places), places).mean(dim=1)

    assert_close(of_set(x, NoPosition()), of_set(x[:, order], NoPosition()))
    assert float((of_set(x, codes) - of_set(x[:, order], codes)).abs().max()) > 1e-3


def test_the_transformer_of_2017_adds_absolute_codes_and_relative_ones_came_in_2018():
    """Its score of two tokens changes when both move; Shaw's (arXiv:1803.02155) does not."""
    torch.manual_seed(0)
    x, at = noise(1, 4, 8, seed=0), torch.arange(4)[None]
    absolute = build_heads(HeadsSettings(d_model=8, n_heads=2)).double()
    relative = build_heads(HeadsSettings(d_model=8, n_heads=2, position=PartSettings("shaw"))).double()
    codes = Sinusoidal(8)
    near, far = (attend(absolute, codes.embed(x, places), places) for places in (at, at + 9))
    assert float((near - far).abs().max()) > 1e-3
    assert_close(*(attend(relative, x, places) for places in (at, at + 9)))


def test_heads_do_not_share_weights():
    """Each head has rows of its own in every projection: 3 · d_head · d_model + their part of the output."""
    layer = build_heads(HeadsSettings(d_model=12, n_heads=3)).double()
    x = noise(1, 5, 12, seed=0)
    heads = split_heads(layer.w_q(x), 3)
    for h in range(3):
        rows = slice(4 * h, 4 * h + 4)
        assert_close(heads[0, h], x[0] @ layer.w_q.weight[rows].T + layer.w_q.bias[rows])
    with torch.no_grad():
        layer.w_q.weight[:4] += 1.0
    changed = (split_heads(layer.w_q(x), 3) - heads).abs().amax(dim=(0, 2, 3)) > 0
    assert changed.tolist() == [True, False, False]


def test_positional_codes_are_no_remedy_against_noise():
    """What noise changes in a token's vector is the same with a code added: codes tell places apart, not signals."""
    x, noisy, places = noise(1, 9, 16, seed=0), noise(1, 9, 16, seed=1), torch.arange(9)[None]
    codes = Sinusoidal(16)
    with_codes = codes.embed(x + noisy, places) - codes.embed(x, places)
    assert_close(with_codes, noisy)
    assert float(codes.embed(x, places).var()) > float(x.var())  # and the code itself is more to tell the signal from

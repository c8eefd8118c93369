"""Dropout by 16 random bits: its share, its mean, its gradient, its repeatability.

Factored tables: the product of two small ones, used as a table is.
"""

import pytest
import torch
from torch.testing import assert_close

from regard.batch import make_batch
from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings
from regard.engine import select_engine
from regard.engine.plain import PlainDecoder
from regard.model.layers import Dropout, FactoredTable
from regard.padding import PAD
from regard.search import SEARCH
from regard.train.loss import LossModule


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(1001, 997), (3, 7, 47_001)])
def test_the_share_and_the_mean_are_kept(rate, shape):
    torch.manual_seed(0)
    y = Dropout(rate)(torch.ones(shape, dtype=torch.float64))
    dropped = float((y == 0).double().mean())
    spread = (rate * (1 - rate) / y.numel()) ** 0.5
    assert abs(dropped - rate) < 5 * spread + 1e-5
    assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - rate)), rtol=1e-4, atol=0)


def test_neighbours_are_dropped_independently():
    """Four features share one drawn word: knowing one must not tell the next."""
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(400_000)) != 0).double().view(-1, 4)
    correlation = torch.corrcoef(kept.T)
    assert float((correlation - torch.eye(4)).abs().max()) < 0.02


def test_gradients_pass_where_features_passed():
    torch.manual_seed(0)
    x = torch.randn(13, 17, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.3)(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert_close(grad * x.detach(), y.detach())


def test_nothing_is_dropped_outside_training_or_at_rate_zero():
    x = torch.randn(5, 7)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_generator_s_state_repeats_it():
    x, layer = torch.ones(101), Dropout(0.5)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert_close(layer(x), first)
    assert not first.equal(second)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_outside_its_range_is_refused(rate):
    with pytest.raises(ValueError, match=rf"dropout must lie in \[0, 1\), got {rate}"):
        Dropout(rate)


V, D, E = 23, 16, 5
SRC, TGT = [[5, 6, 7], [8, 9, 10, 11, 12]], [[7, 6], [9, 8, 5]]


def made(family="transformer", **changes):
    torch.manual_seed(0)
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": D, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
    return build_model(ModelSettings(family=family, **(sizes | {"d_embedding": E} | changes)), (V, V)).eval()


def test_a_row_is_the_row_of_the_product():
    table = FactoredTable(V, E, D, PAD).double()
    ids = torch.tensor([[3, 0], [22, 7]])
    assert_close(table(ids), table.weight[ids])
    assert_close(table.weight, table.codes.weight @ table.up.weight.T)
    assert sum(p.numel() for p in table.parameters()) == V * E + E * D


def test_scaled_vectors_have_variance_1():
    torch.manual_seed(0)
    table = FactoredTable(2000, 128, 384, PAD)
    assert abs(float((table.weight.detach() * 384**0.5).std()) - 1) < 0.05


@pytest.mark.parametrize("tie", ["all", "target", "none"])
@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_a_model_is_what_it_is_with_the_product_as_its_table(family, tie):
    model = made(family, tie=tie).double()
    plain = made(family, tie=tie, d_embedding=None).double()
    inner = {name: value for name, value in model.state_dict().items() if ".table." not in name}
    tables = {f"{side}.table.weight": getattr(model, side).table.weight for side in ("src", "tgt", "output")}
    plain.load_state_dict(inner | tables)
    batch = make_batch(SRC, TGT)
    assert_close(model(batch), plain(batch))
    loss, _ = LossModule(model, 0.1)(batch)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_packed_model_finds_the_same(precision):
    model = made()
    settings = DecodeSettings(method="greedy", max_ratio=0.0, max_extra=8)
    packed = select_engine(model, precision)
    assert type(packed) is not type(model)
    found, expected = (SEARCH["greedy"](each, SRC, settings, None) for each in (packed.decoder, PlainDecoder(model)))
    for one, other in zip(found, expected, strict=True):
        if precision == "float32":
            assert one[0].ids == other[0].ids
        assert_close(one[0].score, other[0].score, rtol=0.1 if precision == "int8" else 1e-4, atol=0)


@pytest.mark.parametrize("width", [0, D, 99])
def test_codes_must_be_narrower_than_vectors(width):
    with pytest.raises(ValueError, match=f"d_embedding must lie in 1 … 15, .* got {width}"):
        made(d_embedding=width)

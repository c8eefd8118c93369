"""Terms add up to the scores, and each is what its name says."""

import pytest
import torch
import torch.nn.functional as F

from regard.batch import make_batch
from regard.model.norm import NORM
from regard.trace.replay import replay, rotation_frequencies
from tests.parts import exactly, make_position
from tests.trace.makers import SCHEMES, make_model

pytestmark = pytest.mark.filterwarnings("ignore:position 'index' with pre-norm is the same as none")

SOURCE, SAID = [5, 6, 7, 8, 9], [6, 4, 9, 3]
FIVE = ("content–content", "content–position", "position–content", "position–position", "constants")
LIMIT = {torch.float32: 1e-5, torch.float64: 1e-10}
ADDED = [name for name, part in SCHEMES.items() if part.name in {"index", "sinusoidal", "learned", "half_wave"}]
BIASED = [name for name, part in SCHEMES.items() if part.name in {"difference", "shaw", "t5", "alibi"}]


def seen(model, source=SOURCE, said=SAID):
    return {(look.kind, look.layer): look for look in replay(model, source, said).attention}


def expected_names(scheme, kind):
    """Names the terms of scaled dot products of width 11."""
    if kind == "cross" or scheme == "none":
        return ("score",)
    if scheme in ADDED:
        return FIVE
    return ("content", "bias") if scheme in BIASED else ("pairs",)


@pytest.mark.parametrize("dtype", LIMIT, ids=str)
@pytest.mark.parametrize(("place", "norm"), [("after", "layer"), *(("before", norm) for norm in NORM)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_terms_add_up_to_the_scores(scheme, place, norm, dtype):
    model = make_model(scheme=scheme, norm_place=place, norm=norm, dtype=dtype)
    for (kind, _), look in seen(model).items():
        terms = look.terms()
        names = ("pairs",) if terms.names[0].startswith("pair ") else terms.names
        assert names == expected_names(scheme, kind)
        assert terms.terms.shape == (len(terms.names), *look.sizes)
        exactly(terms.total, look.scores())
        largest, added = terms.total.abs().max().double(), terms.terms.double().abs().sum(0).max()
        error = (terms.terms.double().sum(0) - terms.total.double()).abs().max() / largest
        assert terms.error <= LIMIT[dtype]
        # What two sums in different orders may differ by.
        rounding = 2 * len(terms.names) * torch.finfo(torch.float64).eps * added / largest
        assert terms.error >= float(error) * 0.99 - rounding, "the error that is shown is that of the sum"
        exactly(look.terms(1).terms, terms.terms[:, 1])


@pytest.mark.parametrize("attention", ["dot", "bilinear"])
def test_other_bilinear_scores_are_split_too(attention):
    terms = seen(make_model(attention=attention))["decoder", 0].terms()
    assert terms.names == FIVE
    assert terms.error < 1e-10


@pytest.mark.parametrize("attention", ["additive", "gaussian"])
def test_scores_that_are_not_bilinear_have_no_split_but_their_bias(attention):
    assert seen(make_model(attention=attention))["encoder", 0].terms().names == ("score",)
    assert seen(make_model(attention=attention, scheme="t5"))["encoder", 0].terms().names == ("content", "bias")


def test_deeper_layers_have_no_split():
    looks = seen(make_model(n_encoder_layers=2))
    assert [looks["encoder", layer].terms(0).names for layer in range(2)] == [FIVE, ("score",)]


def by_hand(model, kind):
    """Gives the five terms of a stack's first layer by their formulas, from the parameters alone."""
    batch = make_batch([SOURCE], [SAID[:-1]])
    side, ids = (model.src, batch.src.ids) if kind == "encoder" else (model.tgt, batch.tgt.inputs)
    layer = (model.encoder if kind == "encoder" else model.decoder).layers[0]
    tokens = side.table.weight[ids[0]] * side.table.embedding_dim**0.5
    codes = side.position.codes(torch.arange(ids.shape[1])[None])[0].to(tokens.dtype)
    x, e = tokens, codes
    if side.position.join.__name__ == "concatenate":
        x, e = F.pad(tokens, (0, codes.shape[1])), F.pad(codes, (tokens.shape[1], 0))
    norm, common = layer.after_attention.norm, torch.zeros(x.shape[1], dtype=x.dtype)
    if layer.after_attention.norm_first:
        deviation = (x + e).std(-1, correction=0, keepdim=True)
        deviation = (deviation**2 + norm.eps).sqrt()
        x, e = ((part - part.mean(-1, keepdim=True)) / deviation * norm.weight for part in (x, e))
        common = norm.bias
    heads = layer.attention
    q, k = (
        [(part @ w.weight.T).unflatten(-1, (2, -1)).transpose(0, 1) for part in (x, e)]
        + [(common @ w.weight.T + w.bias).unflatten(-1, (2, 1, -1)).expand(-1, len(x), -1)]
        for w in (heads.w_q, heads.w_k)
    )
    products = {(i, j): q[i] @ k[j].transpose(-1, -2) / q[i].shape[-1] ** 0.5 for i in range(3) for j in range(3)}
    constants = sum(product for (i, j), product in products.items() if 2 in {i, j})
    return torch.stack([products[0, 0], products[0, 1], products[1, 0], products[1, 1], constants])


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("scheme", ADDED)
def test_the_four_terms_are_the_products_they_are_named_by(scheme, place, kind):
    model = make_model(scheme=scheme, norm_place=place)
    terms = seen(model)[kind, 0].terms()
    torch.testing.assert_close(terms.terms, by_hand(model, kind).detach(), rtol=1e-9, atol=1e-9)
    exactly(terms["content–position"], terms.terms[1])
    with pytest.raises(ValueError, match=r"a term must be one of content–content, .* got 'position'"):
        terms["position"]


@pytest.mark.parametrize("scheme", ADDED)
def test_each_term_knows_its_own_side_only(scheme):
    """Without a norm before: position–position is the same for all words, content–content moves with them."""
    model = make_model(scheme=scheme)
    a, b = (seen(model, source)["encoder", 0].terms() for source in ([5, 6, 7, 8], [7, 9, 5, 4]))
    torch.testing.assert_close(a["position–position"], b["position–position"])
    order = [0, 2]  # the tokens 5 and 7 stand at 0 and 2, and then at 2 and 0
    first, second = (terms["content–content"][:, order][:, :, order] for terms in (a, b))
    torch.testing.assert_close(first, second.flip(1, 2))
    assert (a["content–content"] - b["content–content"]).abs().max() > 1e-3


def test_a_bias_is_what_the_scheme_adds():
    model = make_model(scheme="alibi")
    look = seen(model)["encoder", 0]
    distance = (torch.arange(6) - torch.arange(6)[:, None]).abs()
    slopes = model.encoder.layers[0].attention.position.slopes
    torch.testing.assert_close(look.terms()["bias"], -(distance * slopes[:, None, None]))


def test_turned_queries_have_a_term_for_each_frequency():
    model = make_model(scheme="rotary")
    look = seen(model)["decoder", 0]
    terms = look.terms(0)
    assert len(terms.names) == 6 and terms.names[-1] == "not turned"
    assert terms.names[:2] == ("pair 0, ω = 1", f"pair 1, ω = {10000**-0.2:.4g}")
    for pair in range(5):
        at = slice(2 * pair, 2 * pair + 2)
        torch.testing.assert_close(terms.terms[pair], look.q[0, :, at] @ look.k[0, :, at].T / 11**0.5)


def test_frequencies_are_measured_at_the_scheme():
    torch.testing.assert_close(
        rotation_frequencies(make_position("rotary"), 6), 10000.0 ** -(torch.arange(3).double() / 3)
    )
    assert rotation_frequencies(make_position("none"), 6) is None


def test_another_norm_has_no_split():
    class Halved(torch.nn.Module):
        def forward(self, x, real=None):
            return x.sign() * x.abs().sqrt()

    model = make_model(norm_place="before")
    model.encoder.layers[0].after_attention.norm = Halved()
    looks = seen(model)
    assert looks["encoder", 0].terms().names == ("score",)
    assert looks["decoder", 0].terms().names == FIVE

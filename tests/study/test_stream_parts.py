"""The stream as a sum of means: planted parts are found again, and the terms of scores add up."""

import pytest
import torch
from torch.testing import assert_close

from regard.study.mean_split import (
    AttentionInputs,
    HeadSplit,
    ProjectionInput,
    attention_inputs,
    pair_terms,
    project,
    run,
    split_scores,
)
from regard.study.stream_parts import PARTS, measure, split_means
from regard.trace.head_ablation import plain_copy
from regard.trace.residual import Tokens, record_streams
from tests.parts import noise
from tests.study.models import make_pairs, translator_with
from tests.trace.makers import make_model

# A balanced text: five sentences of the same five words, each at another place in each sentence.
N = 5
SENTENCES = torch.arange(N).repeat_interleave(N)
PLACES = torch.arange(N).repeat(N)
BALANCED = Tokens(4 + (SENTENCES + PLACES) % N, PLACES, SENTENCES)
PAIRS = make_pairs(20)


def centred(n, seed, width=7):
    x = noise(n, width, seed=seed)
    return x - x.mean(0)


def test_planted_parts_are_found_again():
    mean, position, context, word = noise(1, 7, seed=1), centred(N, 2), centred(N, 3), centred(N, 4)
    planted = torch.stack(
        [mean.expand(N * N, -1), position[PLACES], context[SENTENCES], word[BALANCED.ids - 4], torch.zeros(N * N, 7)]
    )
    parts = split_means(planted.sum(0), BALANCED)
    assert_close(parts, planted)
    shares = measure("here", parts, BALANCED, 0)
    sizes = planted[1:].square().sum((1, 2))
    assert_close(shares.variance, sizes / sizes.sum())
    assert_close(shares.sizes[0], mean.norm())
    assert shares.after_words == pytest.approx(float(shares.variance[0]))  # balanced: the order does not matter


def test_what_words_tell_of_places_goes_to_words_where_they_come_first():
    x = noise(N, 7, seed=9)[PLACES]
    tokens = Tokens(4 + PLACES, PLACES, SENTENCES)
    shares = measure("here", split_means(x, tokens), tokens, 0)
    assert float(shares.variance[0]) == pytest.approx(1.0)
    assert shares.after_words == pytest.approx(0.0, abs=1e-20)


def test_parts_add_up_and_so_do_their_squares():
    x = noise(N * N, 7, seed=5)
    parts = split_means(x, BALANCED)
    assert_close(parts.sum(0), x)
    shares = measure("here", parts, BALANCED, 0)
    assert float(shares.variance.sum()) == pytest.approx(1.0)
    assert_close((x - x.mean(0)).square().sum(), parts[1:].square().sum())
    assert_close(shares.cosines.diagonal(), torch.ones(5, dtype=torch.float64))
    assert float(shares.variance[3]) > 0


def test_squares_add_up_where_nothing_is_balanced():
    streams = record_streams(make_model(), [[5, 6, 7, 8], [9, 5]] * 4, [[8, 9, 10], [5]] * 4)
    for stream in streams.values():
        x = stream.last
        parts = split_means(x, stream.tokens)
        assert_close(parts.sum(0), x)
        assert_close((x - x.mean(0)).square().sum(), parts[1:].square().sum())


def test_noise_gives_the_parts_what_chance_gives_them():
    n = 40
    tokens = Tokens(
        torch.randint(4, 24, (n * n,), generator=torch.Generator().manual_seed(1)),
        torch.arange(n).repeat(n),
        torch.arange(n).repeat_interleave(n),
    )
    shares = measure("noise", split_means(noise(n * n, 9, seed=6), tokens), tokens, 0)
    assert_close(shares.variance[:3], shares.by_chance, atol=0.006, rtol=0)
    assert float(shares.variance[0]) == pytest.approx((n - 1) / n**2, abs=0.006)


@pytest.mark.parametrize(
    ("scheme", "attention", "changes"),
    [
        ("sinusoidal", "scaled_dot", {}),
        ("learned", "dot", {"norm": "rms"}),
        ("sinusoidal", "bilinear", {"norm": "batch"}),
        ("rotary", "scaled_dot", {"norm_place": "after"}),
        ("alibi", "scaled_dot", {}),
        ("shaw", "scaled_dot", {"norm_place": "after"}),
        ("none", "scaled_dot", {"n_decoder_layers": 2}),
    ],
)
def test_terms_add_up_to_the_scores(scheme, attention, changes):
    translator = translator_with(scheme=scheme, attention=attention, **changes)
    found = run("random", translator, PAIRS)
    names = [(layer.kind, layer.layer) for layer in found.layers]
    decoder = [(kind, layer) for kind in ("decoder", "cross") for layer in range(changes.get("n_decoder_layers", 1))]
    assert names == [("encoder", 0), ("encoder", 1), *decoder]
    for layer in found.layers:
        assert layer.error < 1e-10
        for head in layer.heads:
            assert float(head.pairs.sum()) + head.bias == pytest.approx(1.0)
            assert (head.bias != 0) == (scheme in {"alibi", "shaw"} and layer.kind != "cross")


def test_float32_models_add_up_nearly():
    model = translator_with(dtype=torch.float32)
    assert max(layer.error for layer in run("random", model, PAIRS).layers) < 1e-5


def test_scores_are_those_of_the_layer_itself():
    """An independent way: the norm and the projections of the model, sentence by sentence."""
    model = make_model(norm_place="before", n_encoder_layers=2)
    streams = record_streams(model, [[5, 6, 7, 8], [9, 5]] * 4, [[8, 9, 10], [5]] * 4)
    job = list(attention_inputs(plain_copy(model), streams))[1]
    q, k = (project(side, job.heads, linear) for side, linear in ((job.q, job.heads.w_q), (job.k, job.heads.w_k)))
    rows = (job.q_sentences == 2).nonzero()[:, 0]
    terms = pair_terms(job.heads.attention, q.at(rows), k.at(rows))
    assert terms.shape == (5, 5, 2, 5, 5)
    layer = model.encoder.layers[1]
    h = layer.after_attention.norm(streams["encoder"].before[1, "attention"][rows])
    queries, keys = (
        linear(h).unflatten(-1, (2, -1)).transpose(0, 1) for linear in (layer.attention.w_q, layer.attention.w_k)
    )
    assert_close(terms.sum((0, 1)), (queries @ keys.mT / 11**0.5).detach())


def test_a_stream_of_positions_alone_has_scores_of_positions_alone():
    """Mean and position make up the stream, so no pair with another part carries anything."""
    heads = make_model(norm_place="after").encoder.layers[0].attention
    x = (noise(1, 22, seed=7) + centred(N, 8, 22))[PLACES]
    side = ProjectionInput(x, split_means(x, BALANCED), None, PLACES)
    (one, other) = split_scores(AttentionInputs("encoder", 0, heads, side, side, SENTENCES, SENTENCES)).heads
    for head in (one, other):
        carried = head.pairs[:2, :2]
        assert float(carried.sum()) == pytest.approx(1.0)
        assert_close(head.pairs.sum(), carried.sum())
        # keys that are all alike make no difference between keys
        assert_close(head.pairs[:, 0], torch.zeros(5, dtype=torch.float64), atol=1e-12, rtol=0)
    assert {name for name, share in one.ranked() if abs(share) > 1e-9} <= {"mean–position", "position–position"}


def test_pairs_are_ranked_by_name():
    pairs = torch.zeros(5, 5, dtype=torch.float64)
    pairs[PARTS.index("word"), PARTS.index("rest")], pairs[1, 1] = 0.7, 0.4
    head = HeadSplit("encoder", 2, 3, pairs, -0.1)
    assert str(head) == "encoder:2:3"
    assert head.ranked()[:2] == [("word–rest", 0.7), ("position–position", 0.4)]
    assert head.ranked()[-1] == ("bias", -0.1) and len(head.ranked()) == 26


def test_attention_that_is_not_bilinear_has_shares_and_no_terms():
    found = run("random", translator_with(attention="gaussian"), PAIRS)
    assert found.layers == [] and len(found.shares["encoder"]) == 3

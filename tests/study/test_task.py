"""Names and axes of encodings, what can be known of a task, and the classifier that reads it.

Without positions it reads a set; it takes no notice of padding, and its trace shows its weights.
"""

import pytest
import torch
from torch.testing import assert_close

from regard.config import ModelSettings, PartSettings
from regard.position import POSITION
from regard.study.task import (
    Examples,
    build_classifier,
    build_encoder,
    coordinates,
    make_position,
    mean_of_real,
    oracle_accuracy,
    parse_encoding,
)
from regard.study.trials import class_weights, classifier_attention
from tests.parts import make_places, noise

AXES = ("index", "frame", "row", "column")
PLACES = torch.tensor([[[0, 0, 0, 0], [1, 0, 0, 1], [2, 1, 3, 5]]])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("none", ()),
        ("sinusoidal", ("index",)),
        ("rotary", ("index",)),
        ("grid_2d", ("row", "column")),
        ("grid_3d", ("frame", "row", "column")),
        ("learned:frame", ("frame",)),
        ("grid_2d:frame,nothing", ("frame", "nothing")),
    ],
)
def test_schemes_receive_their_usual_axes_or_those_that_are_named(text, names):
    told = parse_encoding(text, AXES)
    assert told.coordinates == names
    assert told.scheme == text.partition(":")[0]


def test_coordinates_are_columns_and_nothing_is_0():
    assert coordinates(parse_encoding("sinusoidal", AXES), AXES, PLACES).tolist() == [[0, 1, 2]]
    assert coordinates(parse_encoding("grid_2d", AXES), AXES, PLACES).tolist() == [[[0, 0], [0, 1], [3, 5]]]
    assert coordinates(parse_encoding("grid_2d:nothing,frame", AXES), AXES, PLACES).tolist() == [
        [[0, 0], [0, 0], [0, 1]]
    ]
    assert coordinates(parse_encoding("none", AXES), AXES, PLACES).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grid_5d", "unknown position 'grid_5d'"),
        ("grid_2d:row,colum", "unknown axis of 'grid_2d:row,colum' 'colum': did you mean 'column'"),
        ("grid_2d:row", "takes 2 coordinates, got 1 in 'grid_2d:row'"),
    ],
)
def test_what_does_not_fit_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        parse_encoding(text, AXES)


def test_a_scheme_with_more_axes_than_there_are_is_refused():
    with pytest.raises(ValueError, match="'grid_3d' takes 3 coordinates, and here are 2: index, row"):
        parse_encoding("grid_3d", ("index", "row"))


def test_shuffling_keeps_the_tokens_of_each_example_and_leaves_padding_behind():
    tokens = torch.arange(24).view(3, 8)
    examples = Examples(tokens, torch.zeros(1, 8, 1, dtype=torch.long), torch.tensor([8, 5, 1]), torch.zeros(3).long())
    shuffled = examples.shuffled(0).tokens
    assert not torch.equal(shuffled, tokens)
    for before, after, length in zip(tokens, shuffled, (8, 5, 1), strict=True):
        assert sorted(after[:length].tolist()) == before[:length].tolist()
        assert sorted(after[length:].tolist()) == before[length:].tolist()
    assert torch.equal(examples.shuffled(0).tokens, shuffled)
    assert not torch.equal(examples.shuffled(1).tokens, shuffled)


def test_the_bound_counts_the_commonest_class_of_equal_sets():
    # Two examples are the same set in another order, with different classes; the third is by itself.
    tokens = torch.tensor([[1.0, 2.0, 7.0], [2.0, 1.0, 8.0], [2.0, 2.0, 9.0]])[..., None]
    places = torch.tensor([[[0], [1], [2]]])
    examples = Examples(tokens, places, torch.tensor([2, 2, 2]), torch.tensor([0, 1, 1]))
    axes = ("index",)
    assert oracle_accuracy(examples, coordinates(parse_encoding("none", axes), axes, places)) == pytest.approx(2 / 3)
    assert oracle_accuracy(examples, coordinates(parse_encoding("sinusoidal", axes), axes, places)) == 1.0


B, T, P, D, H, CLASSES = 2, 7, 3, 12, 2, 5
ORDER = torch.tensor([3, 0, 6, 1, 5, 2, 4])


def made(scheme="none", pool="class", reads="patches", **more):
    torch.manual_seed(0)
    settings = ModelSettings(
        n_encoder_layers=2, d_model=D, n_heads=H, d_ff=11, dropout=0.0, position=PartSettings(scheme), **more
    )
    position = make_position(settings, T, 3)
    model = build_classifier(settings, position, P if reads == "patches" else 17, CLASSES, reads, pool)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.double().eval(), make_places(position, 0, T)


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("norm_place", ["before", "after"])
def test_without_positions_the_order_of_the_tokens_does_not_matter(pool, norm_place):
    model, places = made("none", pool, norm_place=norm_place)
    patches = noise(B, T, P, seed=1)
    assert_close(model(patches[:, ORDER], places), model(patches, places))


@pytest.mark.parametrize("scheme", [name for name in POSITION if name != "none"])
def test_with_positions_it_does_unless_they_move_along(scheme):
    model, places = made(scheme)
    patches = noise(B, T, P, seed=1)
    here = model(patches, places)
    assert (model(patches[:, ORDER], places) - here).abs().amax() > 1e-6
    # Rotary schemes and biases act between tokens, so the class token's own place must not move: it is at 0 anyway.
    assert_close(model(patches[:, ORDER], places[:, ORDER]), here)


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("scheme", ["none", "sinusoidal", "t5"])
def test_padding_changes_nothing(pool, scheme):
    model, places = made(scheme, pool)
    patches = noise(B, T, P, seed=1)
    lengths = torch.tensor([4, 7])
    short = model(patches[:1, :4], places[:, :4])
    whole = model(patches, places, lengths)
    assert_close(whole[:1], short)
    assert_close(whole[1:], model(patches[1:], places))
    other = patches.clone()
    other[0, 4:] = 99.0
    assert_close(model(other, places, lengths), whole)


def test_words_are_read_too_and_padding_is_no_word():
    model, places = made("sinusoidal", reads="ids")
    ids = torch.tensor([[1, 16, 2, 3, 0, 0, 0]])
    assert_close(model(ids, places, torch.tensor([4])), model(ids[:, :4], places[:, :4]))
    assert model(ids, places, torch.tensor([4])).shape == (1, CLASSES)


def test_the_mean_is_over_real_tokens():
    x = torch.tensor([[[1.0], [3.0], [50.0]], [[2.0], [4.0], [9.0]]])
    real = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_of_real(x, real).tolist() == [[2.0], [0.0]]
    assert mean_of_real(x, None).tolist() == [[18.0], [5.0]]


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("scheme", ["grid_2d", "rotary", "alibi"])
def test_the_trace_shows_the_weights_that_the_layers_used(scheme, pool):
    model, places = made(scheme, pool)
    patches = noise(1, T, P, seed=1)
    before = model(patches, places)
    looks = classifier_attention(model, patches, places)
    own = int(pool == "class")
    assert [look.layer for look in looks] == [0, 1]
    for look in looks:
        assert look.sizes == (H, T + own, T + own)
        assert_close(look.weights().sum(dim=-1), torch.ones(H, T + own, dtype=torch.float64))
        assert look.error() < 1e-12  # weights @ v is what the layer put out
    shown = class_weights(model, patches, places)
    expected = [look.weights()[:, 0, 1:] if own else look.weights().mean(dim=1) for look in looks]
    assert_close(shown, torch.stack(expected))
    assert not any(module._forward_hooks for module in model.modules())
    assert_close(model(patches, places), before, rtol=0, atol=0)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match="unknown pool 'middle'"):
        made(pool="middle")
    with pytest.raises(ValueError, match="n_classes must be 2 or more, got 1"):
        build_classifier(ModelSettings(d_model=D, n_heads=H), POSITION["none"](), P, 1, "patches", "mean")
    with pytest.raises(ValueError, match="unknown position 'grid_4d': did you mean 'grid_3d'"):
        made("grid_4d")
    with pytest.raises(ValueError, match="got 0 and 2048"):
        build_encoder(ModelSettings(n_encoder_layers=0), POSITION["none"]())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("scheme", ["none", "grid_2d", "rotary", "t5"])
def test_a_gpu_says_the_same_and_learns_the_same(scheme):
    model, places = made(scheme)
    patches, lengths = noise(B, T, P, seed=1).float(), torch.tensor([4, 7])
    told = []
    for device in ("cpu", "cuda"):
        here = model.float().to(device)
        logits = here(patches.to(device), places.to(device), lengths.to(device))
        gradients = torch.autograd.grad(logits.square().sum(), [p for p in here.parameters() if p.requires_grad])
        told.append([logits.detach().cpu(), *(each.cpu() for each in gradients)])
    for ours, theirs in zip(*told, strict=True):
        assert_close(theirs, ours, atol=1e-3, rtol=1e-3)

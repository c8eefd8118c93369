"""Laws of the models: both families, with every part that they can have."""

import re

import pytest
import torch

from regard.attention import ATTENTION
from regard.batch import make_batch, make_source
from regard.build import REFUSED, REFUSED_IN_TEXT, build_model
from regard.config import ModelSettings, PartSettings
from regard.model.norm import NORM, BatchNorm
from regard.padding import PAD
from regard.position import POSITION

FAMILIES = ("transformer", "recurrent")
V_SRC, V_TGT = 11, 13
SOURCES = [[4, 5, 6], [7, 8, 9, 10, 4], [6]]
TARGETS = [[5, 6, 7, 8], [12], [9, 10, 11, 4, 5, 6]]
IN_TEXT = [position for position in POSITION if position not in REFUSED_IN_TEXT]
ON_SCORES = ["difference", "shaw", "t5", "alibi", "rotary"]  # schemes that act inside attention
LEGAL = [
    (family, attention, position)
    for family in FAMILIES
    for attention in ATTENTION
    for position in IN_TEXT
    if (attention, position) not in REFUSED and (family, position) not in {("recurrent", each) for each in ON_SCORES}
]
LEGAL.append(("recurrent", "none", "none"))  # without attention
LEGAL.append(("normalised", "additive", "none"))  # recurrent, with layer normalisation in its cells


def make_model(family="transformer", attention="scaled_dot", position="sinusoidal", **changes):
    """Builds a small model in float64, with parameters that start alike moved apart."""
    torch.manual_seed(3)
    attention, position = (PartSettings(part) if isinstance(part, str) else part for part in (attention, position))
    parts = {"attention": attention, "position": position}
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 14, "n_heads": 2, "d_ff": 17, "dropout": 0.0}
    if family == "normalised":
        family, changes = "recurrent", {"state_norm": "layer", **changes}
    settings = ModelSettings(family=family, **({"tie": "target"} | parts | sizes | changes))
    vocab_sizes = (V_TGT, V_TGT) if settings.tie == "all" else (V_SRC, V_TGT)
    model = build_model(settings, vocab_sizes).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for module in model.modules():
            if isinstance(module, BatchNorm):  # as if it had seen some batches
                module.mean.normal_(std=0.1)
                module.variance.uniform_(0.5, 2.0)
    return model


def stepped(model, sources, targets):
    """Gives the logits of a decoder that reads token by token from its cache, (B, T, V)."""
    read = make_batch(sources, targets).tgt.inputs
    state, logits = model.start(make_source(sources), 1), []
    for tokens in read.T:
        said, state = model.step(tokens, state)
        logits.append(said)
    return torch.stack(logits, dim=1)


def near(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("family", "attention", "position"), LEGAL, ids=["-".join(parts) for parts in LEGAL])
@torch.inference_mode()
def test_a_cache_changes_nothing_and_neither_does_reading_all_at_once(family, attention, position):
    model = make_model(family, attention, position)
    batch = make_batch(SOURCES, TARGETS)
    by_step, at_once = stepped(model, SOURCES, TARGETS), model(batch)
    near(by_step[batch.tgt.token_mask], at_once[batch.tgt.token_mask])
    for t in (1, 2, 5):  # without a cache: the sentence so far, anew at each step
        so_far = model(make_batch(SOURCES, [target[: t - 1] for target in TARGETS]))
        for row, target in enumerate(TARGETS):
            if t <= len(target) + 1:
                near(by_step[row, t - 1], so_far[row, t - 1])


@pytest.mark.parametrize(("family", "attention", "position"), LEGAL, ids=["-".join(parts) for parts in LEGAL])
@torch.inference_mode()
def test_padding_and_the_order_of_the_batch_change_nothing(family, attention, position):
    model, real = make_model(family, attention, position), make_batch(SOURCES, TARGETS).tgt.token_mask
    expected = model(make_batch(SOURCES, TARGETS))
    wide = model(make_batch(SOURCES, TARGETS, widths=(19, 17)))
    near(wide[:, : real.shape[1]][real], expected[real])
    backwards = model(make_batch(SOURCES[::-1], TARGETS[::-1])).flip(0)
    near(backwards[real], expected[real])
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        near(model(make_batch([source], [target]))[0], expected[row][real[row]])


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_the_source_and_the_past_matter_and_the_future_does_not(family):
    model = make_model(family)
    expected = model(make_batch([[4, 5, 6]], [[5, 6, 7]]))[0]
    other_source, other_past = (
        model(make_batch([[4, 5, 7]], [[5, 6, 7]]))[0],
        model(make_batch([[4, 5, 6]], [[6, 6, 7]]))[0],
    )
    assert ((other_source - expected).abs().amax(-1) > 1e-6).all()
    assert ((other_past - expected).abs().amax(-1)[1:] > 1e-6).all()
    other_future = model(make_batch([[4, 5, 6]], [[5, 6, 12]]))[0]
    near(other_future[:3], expected[:3])


def by_the_book(model, batch):
    """Gives the recurrent model's logits by its paper's formulas and PyTorch's cells, one token after another."""
    src, tgt = batch.src, batch.tgt
    memory, ends = model.encoder(model.src(src.ids, src.positions), src.lengths)
    hidden = list(torch.tanh(model.first(ends)).chunk(len(model.decoder.cells), dim=-1))
    logits = []
    for word in model.tgt(tgt.inputs, tgt.positions).unbind(1):
        weights = model.attention.weights(hidden[-1][:, None, None], memory[:, None], src.mask)
        context = (weights @ memory[:, None])[:, 0, 0]
        below = torch.cat([word, context], dim=-1)
        for layer, cell in enumerate(model.decoder.cells):
            below = hidden[layer] = cell(below, hidden[layer])
        logits.append(model.output(torch.tanh(model.mix(torch.cat([below, context], dim=-1)))))
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("n_decoder_layers", [1, 2])
@pytest.mark.parametrize("attention", ATTENTION)
def test_a_recurrent_model_equals_its_formulas_in_value_and_gradient(attention, n_decoder_layers):
    model = make_model("recurrent", attention, n_decoder_layers=n_decoder_layers).train()
    batch, wanted = make_batch(SOURCES, TARGETS), list(model.parameters())
    fast, plain = model(batch), by_the_book(model, batch)
    near(fast, plain)
    near(*(torch.autograd.grad(logits.square().sum(), wanted) for logits in (fast, plain)))


@pytest.mark.parametrize("attention", ATTENTION)
def test_a_recurrent_model_asks_for_the_features_of_its_keys_once(attention, monkeypatch):
    model, asked = make_model("recurrent", attention), []
    key_features = model.attention.key_features
    monkeypatch.setattr(model.attention, "key_features", lambda k: asked.append(k) or key_features(k))
    model(make_batch(SOURCES, TARGETS))
    assert len(asked) == 1
    state = model.start(make_source(SOURCES), 2).keep(torch.tensor([2, 0]))
    for _ in range(3):
        _, state = model.step(torch.tensor([5, 6, 7, 8]), state.reorder(torch.tensor([1, 0, 3, 3])))
    assert len(asked) == 2


@pytest.mark.parametrize("attention", ATTENTION)
@torch.inference_mode()
def test_what_a_recurrent_model_tells_its_attention_is_enough_to_look_inside(attention):
    model, seen = make_model("recurrent", attention), []
    model.attention.register_forward_hook(lambda _, given, context: seen.append((*given, context)))
    model(make_batch(SOURCES, TARGETS))
    assert len(seen) == 7
    for q, k, v, mask, context in seen:
        near(model.attention.weights(q, k, mask) @ v, context)


@torch.inference_mode()
def test_without_attention_one_vector_is_all_that_the_decoder_knows_of_a_sentence():
    """All weight is on the last token, where the last states of both directions are; the rest of memory is empty."""
    model, seen = make_model("recurrent", "none"), []
    model.attention.register_forward_hook(lambda _, given, context: seen.append((*given, context)))
    batch = make_batch(SOURCES, TARGETS)
    model(batch)
    _, ends = model.encoder(model.src(batch.src.ids, batch.src.positions), batch.src.lengths)
    for q, k, v, mask, context in seen:
        weights = model.attention.weights(q, k, mask)
        near(weights, torch.nn.functional.one_hot(batch.src.lengths - 1, k.shape[2])[:, None, None].double())
        near(weights @ v, context)
        near(context[:, 0, 0], ends)
        assert torch.count_nonzero(v) == ends.numel()


@pytest.mark.parametrize("family", ["transformer", "decoder"])
def test_only_a_recurrent_model_can_be_without_attention(family):
    with pytest.raises(ValueError, match=f"attention 'none' has no meaning in a {family} model"):
        make_model(family, "none")


BRANCHING = [("transformer", "scaled_dot"), *(("recurrent", attention) for attention in (*ATTENTION, "none"))]


@pytest.mark.parametrize(("family", "attention"), BRANCHING, ids=["-".join(parts) for parts in BRANCHING])
@torch.inference_mode()
def test_hypotheses_of_a_sentence_share_it_and_go_their_own_ways(family, attention):
    model, N = make_model(family, attention), 3
    written = [[5, 6, 7], [8, 5, 5], [12, 9, 6], [5, 5, 5], [6, 6, 7], [7, 4, 4]]  # three for each of two sentences
    read = make_batch([[4]] * 6, written).tgt.inputs
    state = model.start(make_source(SOURCES[:2]), N)
    for t in range(3):
        logits, state = model.step(read[:, t], state)
        near(logits, stepped(model, [SOURCES[row // N] for row in range(6)], written)[:, t])
    continued = torch.tensor([2, 2, 0, 4, 3, 3])
    logits, after = model.step(torch.full((6,), 4), state.reorder(continued))
    expected = stepped(model, [SOURCES[row // N] for row in range(6)], [[*written[row][:2], 4] for row in continued])
    near(logits, expected[:, 3])
    kept, _ = model.step(torch.full((3,), 9), after.keep(torch.tensor([1])))
    expected = stepped(model, [SOURCES[1]] * 3, [[*written[row][:2], 4, 9] for row in continued[3:]])
    near(kept, expected[:, 4])


@pytest.mark.parametrize("family", FAMILIES)
def test_tables_are_tied_as_told(family):
    everything = make_model(family, tie="all")
    assert everything.src.table is everything.tgt.table is everything.output.table
    target = make_model(family, tie="target")
    assert target.src.table is not target.tgt.table
    assert target.tgt.table is target.output.table
    nothing = make_model(family, tie="none")
    assert len({id(nothing.src.table), id(nothing.tgt.table), id(nothing.output.table)}) == 3
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in (target, nothing)]
    assert sizes[1] - sizes[0] == V_TGT * 14


@pytest.mark.parametrize("norm_place", ["before", "after"])
@pytest.mark.parametrize("norm", NORM)
@torch.inference_mode()
def test_every_norm_runs_in_both_places_and_decodes_as_it_was_trained(norm, norm_place):
    model = make_model(norm=norm, norm_place=norm_place)
    real = make_batch(SOURCES, TARGETS).tgt.token_mask
    near(stepped(model, SOURCES, TARGETS)[real], model(make_batch(SOURCES, TARGETS))[real])
    assert (model.decoder.last_norm is None) == (norm_place == "after")


@pytest.mark.parametrize("norm_place", ["before", "after"])
def test_batch_norm_does_not_see_padding_in_training(norm_place):
    tight, wide = (make_model(norm="batch", norm_place=norm_place).train() for _ in range(2))
    real = make_batch(SOURCES, TARGETS).tgt.token_mask
    expected = tight(make_batch(SOURCES, TARGETS))
    near(wide(make_batch(SOURCES, TARGETS, widths=(19, 17)))[:, : real.shape[1]][real], expected[real])
    for (name, a), (_, b) in zip(tight.named_buffers(), wide.named_buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=name)
    before = make_model(norm="batch", norm_place=norm_place).state_dict()
    moved = [name for name, tensor in tight.named_buffers() if (tensor - before[name]).abs().max() > 1e-6]
    assert len(moved) == len(list(tight.named_buffers())), "training must be seen in the running means"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_learns_but_the_padding(family):
    model = make_model(family, tie="none").train()
    model(make_batch(SOURCES, TARGETS)).square().mean().backward()
    untouched = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not untouched
    assert (model.src.table.weight.grad[PAD] == 0).all()


@pytest.mark.parametrize("join", ["add", "concatenate"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_codes_beside_the_token_decode_as_codes_added_to_it(family, join):
    part = PartSettings("sinusoidal", {"join": join})
    model, real = make_model(family, position=part, tie="none"), make_batch(SOURCES, TARGETS).tgt.token_mask
    near(stepped(model, SOURCES, TARGETS)[real], model(make_batch(SOURCES, TARGETS))[real])


BESIDE = PartSettings("sinusoidal", {"join": "concatenate"})
WRONG = [
    ({"n_heads": 4}, "d_model must be divisible by n_heads, got 14 and 4"),
    ({"n_encoder_layers": 0}, r"n_encoder_layers, n_decoder_layers and d_ff must be 1 or more, got \(0, 2, 17\)"),
    ({"d_ff": -1}, r"must be 1 or more, got \(1, 2, -1\)"),
    ({"norm": "group"}, "unknown norm 'group': valid are layer, rms, batch"),
    ({"attention": "adition"}, "unknown attention 'adition': did you mean 'additive'"),
    ({"position": "rotory"}, "unknown position 'rotory': did you mean 'rotary'"),
    ({"family": "recurrent", "norm": "bogus"}, "unknown norm 'bogus'"),
    ({"family": "recurrent", "activation": "sine"}, "unknown activation 'sine'"),
    (
        {"position": PartSettings("sinusoidal", {"join": "concatenate"}), "tie": "all"},
        "11 of 14 features.*'all'.*'inputs'",
    ),
    (
        {"position": PartSettings("sinusoidal", {"join": "concatenate"}), "tie": "target"},
        "got tie 'target': use 'none'",
    ),
    ({"family": "recurrent", "d_model": 15, "n_heads": 3}, "d_model must be even, .* got 15"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_models_that_cannot_be_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        make_model(**changes)


def test_one_table_for_two_vocabularies_is_refused():
    with pytest.raises(ValueError, match=r"tie 'all' needs one vocabulary .*, got 11 and 13 pieces: use 'target'"):
        build_model(ModelSettings(tie="all"), (11, 13))


def test_adding_one_number_to_all_features_is_lost_in_pre_norm_and_said():
    plain = make_model(norm_place="before", position="none")
    with pytest.warns(UserWarning, match="position 'index' with pre-norm is the same as none"):
        index = make_model(norm_place="before", position="index")
    index.load_state_dict(plain.state_dict())
    batch = make_batch(SOURCES, TARGETS)
    near(index(batch), plain(batch))
    after = [make_model(norm_place="after", position=name)(batch) for name in ("index", "none")]
    assert (after[0] - after[1]).abs().max() > 0.01


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("position", REFUSED_IN_TEXT)
def test_positions_that_text_does_not_have_are_refused_with_the_reason(family, position):
    said = f"position {position!r} has no meaning in a text model: {REFUSED_IN_TEXT[position]}"
    with pytest.raises(ValueError, match=re.escape(said)):
        make_model(family, position=position)


@pytest.mark.parametrize("position", ON_SCORES)
def test_a_position_that_the_recurrent_model_would_leave_out_is_refused(position):
    with pytest.raises(ValueError, match=position):
        make_model("recurrent", position=position)


@pytest.mark.parametrize(("attention", "position"), REFUSED, ids=str)
def test_pairs_without_a_meaning_are_refused_with_the_reason(attention, position):
    with pytest.raises(ValueError, match=re.escape(REFUSED[attention, position])):
        make_model("transformer", attention, position)

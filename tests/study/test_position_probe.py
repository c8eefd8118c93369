"""The position probe: what it must find in codes and words, and the models without residual connections.

The linear probe finds what was planted, as much of it as can be found, and nothing where nothing is.
"""

from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.testing import assert_close
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerFast,
)

from regard.batch import make_batch
from regard.model.norm import LayerNorm, Residual
from regard.padding import BOS, EOS
from regard.study.linear_probe import STRENGTHS, fit_ridge, probe, r_squared
from regard.study.no_residuals import NoResidual, SmallSettings, renumber_tokens, small_models, without_residuals
from regard.study.position_probe import (
    ProbeSettings,
    figure,
    is_word,
    probe_points,
    relative_positions,
    run,
    run_hf,
    tables,
)
from regard.study.sequences import bundled_pairs, encode_pairs
from regard.study.stream_parts import code_vectors, scheme_of, word_vectors
from regard.trace.hugging_face import record_hf_states
from regard.trace.residual import Tokens, record_streams
from tests.parts import noise
from tests.study.models import make_pairs, translator_with
from tests.trace.makers import make_model

TINY = SmallSettings(n_encoder_layers=2, n_decoder_layers=1, d_model=16, n_heads=2, d_ff=16, steps=2)
SETTINGS = ProbeSettings(splits=2, small=TINY, small_seeds=1)
PAIRS = make_pairs()


@pytest.fixture(scope="module")
def study():
    return run("random", translator_with(), PAIRS, SETTINGS)


def tokens(lengths):
    positions = torch.cat([torch.arange(n) for n in lengths])
    ids = torch.cat([torch.tensor([BOS, *[7] * (n - 2), EOS]) for n in lengths])
    return Tokens(ids, positions, torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)))


def test_words_are_pieces_of_sentences_with_several():
    kept = is_word(tokens([5, 3, 4]))
    assert kept.tolist() == [False, True, True, True, False, False, False, False, False, True, True, False]


def test_shares_run_from_the_first_word_to_the_last():
    found = relative_positions(torch.tensor([1, 2, 3, 4, 5, 1, 2]), torch.tensor([0, 0, 0, 0, 0, 3, 3]))
    assert_close(found, torch.tensor([0, 0.25, 0.5, 0.75, 1, 0, 1], dtype=torch.float64))


def test_a_planted_position_is_read_and_its_shuffle_is_not():
    text = tokens([6, 9, 12, 7, 10, 8, 11, 6] * 12)
    n, direction = len(text.ids), noise(5, seed=1)
    vectors = {
        "planted": text.positions[:, None] * direction + 0.1 * noise(n, 5, seed=2),
        "nothing": noise(n, 5, seed=3),
    }
    found = probe_points(vectors, text, ProbeSettings(splits=3))
    assert (found["planted"][:, 0] > 0.99).all() and (found["planted"][:, 2] < 0.02).all()
    assert 0.3 < float(found["planted"][:, 1].mean()) < 0.97  # lengths differ: the place alone does not tell the share
    assert (found["nothing"] < 0.02).all()


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "sinusoidal beside", "index"])
def test_words_and_codes_add_up_to_the_embedding(scheme):
    model = make_model(scheme=scheme)
    stream = record_streams(model, [[5, 6, 7]], [[8]])["encoder"]
    words = word_vectors(model.src, stream.tokens.ids)
    codes = code_vectors(model.src, stream.tokens.positions)
    assert_close(words + codes, stream.before[0, "attention"])
    again = word_vectors(model.src, stream.tokens.ids.flip(0)).flip(0)
    assert_close(words, again)  # a word's vector does not know where the word stands
    assert scheme_of(model) == scheme.split(" ")[0]


@pytest.mark.parametrize("scheme", ["rotary", "alibi", "none"])
def test_schemes_that_act_elsewhere_have_no_codes(scheme):
    model = make_model(scheme=scheme)
    assert code_vectors(model.src, torch.arange(4)) is None
    assert scheme_of(model) == scheme


def test_codes_alone_tell_the_place_and_shuffled_places_nobody(study):
    encoder, decoder = study.stacks
    assert (encoder.stack, decoder.stack) == ("encoder", "decoder")
    for stack, layers in ((encoder, 2), (decoder, 1)):
        assert stack.codes.position.mean > 0.99
        assert stack.codes.position.mean > stack.words.position.mean
        assert len(stack.points) == layers + 1
        assert all(reading.shuffled.mean < 0.1 for reading in [*stack.points, stack.codes, stack.words])
    assert [reading.point for reading in decoder.updates] == ["0 attention", "0 cross attention", "0 feed forward"]
    assert study.n_words["encoder"] == sum(len(src) for src, _ in PAIRS)


def test_small_models_are_of_four_kinds_and_all_seeds_count(study):
    assert [(small.residual, small.trained) for small in study.small] == [
        (True, False),
        (True, True),
        (False, False),
        (False, True),
    ]
    more = run("random", translator_with(), PAIRS, replace(SETTINGS, small_seeds=2))
    assert {small.loss.n for small in more.small} == {2}
    assert {reading.position.n for small in more.small for stack in small.stacks for reading in stack.points} == {4}


def test_a_bare_residual_is_its_sublayer():
    torch.manual_seed(0)
    x = noise(2, 3, 5, seed=1)
    norm = LayerNorm(5).double()
    torch.nn.init.normal_(norm.weight)
    for first in (True, False):
        bare = NoResidual(Residual(norm, first, 0.0))
        expected = torch.tanh(norm(x)) if first else norm(torch.tanh(x))
        assert_close(bare(x, torch.tanh(bare.before(x, None)), None), expected)


def test_models_with_and_without_start_alike_and_differ_by_the_sum():
    with_them, without = make_model(), without_residuals(make_model())
    assert with_them.state_dict().keys() == without.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(with_them.parameters(), without.parameters(), strict=True))
    assert not any(type(module) is Residual for module in without.modules())
    batch = make_batch([[5, 6, 7]], [[8, 9]])
    assert not torch.equal(with_them(batch), without(batch))


def test_small_models_learn_and_start_from_the_same_numbers():
    text = encode_pairs(translator_with(), [(word, word) for word, _ in make_pairs(24)], 1)
    src, tgt, n_pieces = renumber_tokens(text.src, text.tgt)
    settings = replace(TINY, steps=20, lr=2e-2, dropout=0.0)
    made = small_models(src, tgt, n_pieces, settings, [0], "cpu")
    losses = {(small.residual, small.trained): small.loss for small in made}
    assert losses[True, True] < losses[True, False] - 0.3
    assert losses[False, True] < losses[False, False]
    starts = [
        [parameter.detach().clone() for parameter in small.model.parameters()]
        for small in small_models(src, tgt, n_pieces, replace(TINY, steps=1), [4], "cpu")
        if not small.trained
    ]
    assert all(torch.equal(one, other) for one, other in zip(*starts, strict=True))


def test_pieces_get_small_numbers_of_their_own():
    src, tgt, n = renumber_tokens([[90, 7, 90]], [[7, 1, 2000]])
    assert (src, tgt, n) == ([[5, 4, 5]], [[4, 1, 6]], 7)


def test_the_text_that_comes_along_is_read_both_ways():
    pairs = bundled_pairs("zh", "en")
    assert len(pairs) >= 150 and len(set(pairs)) == len(pairs)
    assert all(one.strip() == one and other.strip() == other and one and other for one, other in pairs)
    assert bundled_pairs("en", "zh") == [(other, one) for one, other in pairs]
    with pytest.raises(ValueError, match="the model translates de to en: give a text with --data"):
        bundled_pairs("de", "en")


def test_pairs_that_cannot_be_read_are_left_out_and_few_are_refused():
    translator = translator_with()
    text = encode_pairs(translator, [*PAIRS, ("", "a"), ("a" * 31, "b")], 1)
    assert (len(text.src), text.n_unread) == (24, 2)
    with pytest.raises(ValueError, match="needs 16 pairs or more that the model can read, got 3"):
        run("random", translator, PAIRS[:3], SETTINGS)


N_SENTENCES, LENGTH, D = 300, 7, 11
SENTENCES = torch.arange(N_SENTENCES).repeat_interleave(LENGTH)
PLACES = torch.arange(LENGTH).repeat(N_SENTENCES).double()


def planted(strength):
    """Gives vectors with the place along one direction, under noise of variance 1 in all."""
    direction = torch.nn.functional.normalize(noise(D, seed=1), dim=0)
    return strength * PLACES[:, None] * direction + noise(len(PLACES), D, seed=2)


@pytest.mark.parametrize("strength", [0.2, 0.5, 2.0])
def test_r_squared_is_the_share_that_noise_leaves(strength):
    signal = strength**2 * float(PLACES.var(correction=0))
    found = probe(planted(strength), PLACES[:, None], SENTENCES, splits=4, seed=0)
    assert found.shape == (4, 1)
    assert float(found.mean()) == pytest.approx(signal / (signal + 1), abs=0.03)


def test_nothing_is_found_where_nothing_is():
    shuffled = PLACES[torch.randperm(len(PLACES), generator=torch.Generator().manual_seed(5))]
    y = torch.stack([PLACES, shuffled], dim=1)
    assert (probe(planted(0.0), y, SENTENCES, 3, 0) < 0.01).all()
    assert (probe(planted(2.0), y, SENTENCES, 3, 0)[:, 1] < 0.01).all()


def test_one_vector_far_from_all_others_does_not_outweigh_them():
    """A stream that has collapsed but for one word, which is learned from in some splits and held out in others."""
    x = 1e-7 * planted(0.5)
    x[12 * LENGTH + 3] = 1.0
    assert (probe(x, PLACES[:, None], SENTENCES, 20, 0) > -0.01).all()


def test_sentences_are_held_out_and_not_tokens():
    """What only names the sentence tells nothing about others, though it tells all about this one."""
    names = torch.nn.functional.one_hot(SENTENCES).double()
    of_sentence = noise(N_SENTENCES, seed=3)[SENTENCES]
    assert (probe(names, of_sentence[:, None], SENTENCES, 2, 0) < 0.05).all()
    weights, offset = fit_ridge(names, of_sentence[:, None], torch.full((1, 1), 1e-8, dtype=torch.float64))
    assert_close(names @ weights[0] + offset[0], of_sentence[:, None], atol=1e-4, rtol=0)


def test_a_fit_solves_the_normal_equations():
    x, y = planted(0.5), torch.stack([PLACES, PLACES.square()], dim=1)
    strengths = torch.tensor([[0.1, 3.0], [1.0, 0.01]], dtype=torch.float64)
    weights, offset = fit_ridge(x, y, strengths)
    centred, targets = x - x.mean(0), y - y.mean(0)
    scale = float(centred.square().mean(0).mean())
    for s in range(2):
        for k in range(2):
            left = centred.T @ centred / len(x) + strengths[s, k] * scale * torch.eye(D, dtype=torch.float64)
            expected = torch.linalg.solve(left, centred.T @ targets[:, k] / len(x))
            assert_close(weights[s, :, k], expected)
            assert_close(offset[s, k], y[:, k].mean() - x.mean(0) @ expected)


def test_r_squared_is_one_for_the_truth_and_zero_for_the_mean():
    y = noise(13, 2, seed=4)
    assert_close(r_squared(y, y), torch.ones(2, dtype=torch.float64))
    assert_close(r_squared(y, y.mean(0).expand_as(y)), torch.zeros(2, dtype=torch.float64))
    assert (r_squared(y, -y + 3) < 0).all()


def test_the_seed_draws_the_splits():
    x, y = planted(0.5), PLACES[:, None]
    one, same, other = (probe(x, y, SENTENCES, 2, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert STRENGTHS[0] < 1e-6 and STRENGTHS[-1] > 10


def test_few_sentences_are_refused():
    few = SENTENCES < 7
    with pytest.raises(ValueError, match="needs 8 sentences or more, some to learn from and some held out, got 7"):
        probe(planted(1.0)[few], PLACES[few][:, None], SENTENCES[few], 1, 0)


WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefgh"]


def make_tokenizer():
    """Makes a tokenizer for which a word is a token, between [CLS] and [SEP]."""
    plain = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 1), ("[SEP]", 2)]
    plain.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=plain, model_max_length=24, **names)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def make_bert():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    return BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=24, initializer_range=0.5, **sizes))


def make_gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 24}
    return GPT2Model(GPT2Config(vocab_size=len(WORDS), initializer_range=0.5, **sizes))


def make_bart():
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 24}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    return BartModel(BartConfig(vocab_size=len(WORDS), **sizes, **heads, **ids))


def texts(n):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 12, (n,), generator=generator).tolist()
    rows = [[WORDS[4 + int(each)] for each in torch.randint(8, (m,), generator=generator)] for m in lengths]
    return [(" ".join(row), " ".join(reversed(row))) for row in rows]


@pytest.mark.parametrize(("make", "stacks"), [(make_bert, [2]), (make_gpt2, [3]), (make_bart, [1, 2])])
def test_positions_are_read_from_hugging_face_models(make, stacks, tokenizer):
    model = make().train()
    study = run_hf("theirs", model, tokenizer, texts(60), ProbeSettings(splits=2))
    assert model.training and not study.small
    assert [len(stack.points) - 1 for stack in study.stacks] == stacks
    for stack in study.stacks:
        names = [score.point for score in stack.points]
        assert names == ["embedding", *(f"layer {n}" for n in range(len(names) - 1))]
        assert stack.points[0].position.mean > 0.5 > stack.words.position.mean + 0.3
        assert all(score.shuffled.mean < 0.1 for score in stack.points)
    assert list(tables(study)) == ["stream"] and len(figure(study).axes) == len(stacks)


@torch.no_grad()
def test_hidden_states_are_those_that_the_model_returns(tokenizer):
    model, pairs = make_bert().eval(), [("a b", ""), ("c d e x", "")]
    (states,) = record_hf_states(model, tokenizer, pairs)
    rows = [model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True) for text, _ in pairs]
    for layer, found in enumerate(states.layers):
        assert_close(found, torch.cat([row.hidden_states[layer][0] for row in rows]))
    assert_close(found, torch.cat([row.last_hidden_state[0] for row in rows]))
    assert states.tokens.positions.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    assert states.tokens.sentences.tolist() == [0] * 4 + [1] * 6
    # [CLS] and [SEP] are no words, and [UNK] stands for one
    assert is_word(states.tokens, states.special).tolist() == [*[False, True, True, False], False, *[True] * 4, False]
    assert_close(states.words, model.embeddings.word_embeddings(states.tokens.ids))


def test_what_a_model_cannot_read_is_left_out_and_too_little_is_refused(tokenizer):
    pairs = [*texts(20), (" ".join("a" * 40), "")]
    study = run_hf("theirs", make_gpt2(), tokenizer, pairs, ProbeSettings(splits=2))
    assert (study.n_pairs, study.n_unread) == (20, 1)
    with pytest.raises(ValueError, match="needs 16 texts or more that the model can read, got 3"):
        run_hf("theirs", make_gpt2(), tokenizer, pairs[-4:], ProbeSettings())

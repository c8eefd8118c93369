"""The decoder-only model: what is cached is what is read whole, and nobody sees what comes later."""

import pytest
import torch

from regard.batch import make_batch, make_source
from regard.build import REFUSED_IN_TEXT, build_model
from regard.config import ModelSettings, PartSettings
from regard.model import DecoderOnly, Transformer
from regard.model.norm import BatchNorm
from regard.padding import BOS
from regard.position import POSITION

pytestmark = pytest.mark.filterwarnings("ignore:position 'index' with pre-norm is the same as none")

V, T = 11, 7
SCHEMES = [name for name in POSITION if name not in REFUSED_IN_TEXT]
TEXTS = [[4, 5, 6, 7, 8, 9], [9, 9, 4], [10], [5, 4, 5, 4, 5]]


def make_model(position="rotary", **changes):
    torch.manual_seed(3)
    sizes = {"n_encoder_layers": 0, "n_decoder_layers": 2, "d_model": 20, "n_heads": 2, "d_ff": 13, "dropout": 0.0}
    parts = {"position": PartSettings(position) if isinstance(position, str) else position}
    model = build_model(ModelSettings(family="decoder", **(sizes | parts | changes)), (V, V)).double().eval()
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.mean.normal_(std=0.1)
            module.variance.uniform_(0.5, 2.0)
    return model


def logits_of(model, texts):
    with torch.inference_mode():
        return model(make_batch([[]] * len(texts), texts))


@pytest.mark.parametrize("changes", [{}, {"norm_place": "before"}, {"norm": "batch", "tie": "none"}])
@pytest.mark.parametrize("position", SCHEMES)
def test_token_by_token_is_as_all_at_once(position, changes):
    model = make_model(position, **changes)
    whole = logits_of(model, TEXTS)
    read = make_batch([[]] * len(TEXTS), TEXTS).tgt.inputs
    state = model.start(make_source([[]] * len(TEXTS)), 1)
    for t in range(read.shape[1]):
        with torch.inference_mode():
            said, state = model.step(read[:, t], state)
        real = [row for row, text in enumerate(TEXTS) if t <= len(text)]
        torch.testing.assert_close(said[real], whole[real, t], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("position", SCHEMES)
@pytest.mark.parametrize("cut", [1, 4])
def test_a_prompt_read_at_once_leaves_the_same_state(position, cut):
    model, text = make_model(position), torch.tensor([[BOS, *TEXTS[0]]])
    with torch.inference_mode():
        state = model.start(make_source([[]]), 1)
        _, state = model.advance(text[:, :cut], state)
        said, state = model.advance(text[:, cut:], state)
    torch.testing.assert_close(said, logits_of(model, TEXTS[:1])[:, -1], rtol=1e-9, atol=1e-9)
    assert state.length == text.shape[1]


@pytest.mark.parametrize("position", SCHEMES)
def test_what_comes_later_leaves_what_was_before_as_it_is_to_the_bit(position):
    model, text = make_model(position), TEXTS[0]
    whole = logits_of(model, [text])
    for t in range(1, len(text)):
        changed = [*text[:t], *(4 + (token - 3) % 7 for token in text[t:])]
        other = logits_of(model, [changed])
        assert torch.equal(other[:, : t + 1], whole[:, : t + 1])
        assert not torch.equal(other[:, t + 1 :], whole[:, t + 1 :])


def test_neither_neighbours_nor_their_order_nor_padding_matter():
    model = make_model()
    together = logits_of(model, TEXTS)
    turned = logits_of(model, TEXTS[::-1])
    for row, text in enumerate(TEXTS):
        alone = logits_of(model, [text])[0]
        torch.testing.assert_close(together[row, : len(text) + 1], alone, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(turned[-1 - row, : len(text) + 1], alone, rtol=1e-9, atol=1e-9)


def test_hypotheses_go_on_from_others_and_sentences_leave():
    model = make_model()
    state = model.start(make_source([[], []]), 2)
    with torch.inference_mode():
        _, state = model.step(torch.full((4,), BOS), state)
        _, state = model.step(torch.tensor([4, 5, 6, 7]), state)
        said, _ = model.step(torch.tensor([8, 8]), state.reorder(torch.tensor([1, 1, 3, 2])).keep(torch.tensor([1])))
    expected = [logits_of(model, [[first, 8]])[0, -1] for first in (7, 6)]
    torch.testing.assert_close(said, torch.stack(expected), rtol=1e-9, atol=1e-9)


def test_the_source_says_nothing():
    model = make_model()
    with torch.inference_mode():
        one, other = (model(make_batch([source], [TEXTS[0]])) for source in ([], [4, 5, 6]))
    assert torch.equal(one, other)


def test_its_layers_are_the_encoder_s():
    model = make_model()
    reader = build_model(ModelSettings(n_encoder_layers=2, n_decoder_layers=1, d_model=20, n_heads=2, d_ff=13), (V, V))
    assert isinstance(model, DecoderOnly) and isinstance(reader, Transformer)
    assert {name: p.shape for name, p in model.decoder.named_parameters()} == {
        name: p.shape for name, p in reader.encoder.named_parameters()
    }


def test_a_table_of_positions_ends():
    model = make_model(PartSettings("learned", {"max_len": 4}))
    assert model.limit == 4
    with pytest.raises(ValueError, match="below 4, the end of the table, got 4"):
        logits_of(model, [[4] * 4])


@pytest.mark.parametrize(("changes", "wrong"), [({"n_decoder_layers": 0}, r"\(0, 0, 13\)"), ({"d_ff": 0}, r"2, 0\)")])
def test_sizes_that_no_decoder_can_have(changes, wrong):
    with pytest.raises(ValueError, match=rf"must be 1 or more, got .*{wrong}"):
        make_model(**changes)

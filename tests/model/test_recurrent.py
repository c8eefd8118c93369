"""The GRUs of the recurrent model against PyTorch's own on packed sequences."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from regard.batch import make_batch
from regard.build import build_model
from regard.config import ModelSettings, PartSettings, TrainSettings
from regard.model.recurrent import GRUDecoder, GRUEncoder, NormalisedGRU
from regard.train.loss import LossModule
from regard.train.step import make_optimiser, run_step
from tests.parts import noise

B, S, D, LAYERS = 3, 7, 6, 2
LENGTHS = torch.tensor([4, 7, 1])


def copied(reader):
    """Gives PyTorch's bidirectional GRU with the reader's weights."""
    theirs = nn.GRU(D, D // 2, LAYERS, batch_first=True, bidirectional=True).double()
    for layer, pair in enumerate(zip(reader.forwards, reader.backwards, strict=True)):
        for gru, direction in zip(pair, ("", "_reverse"), strict=True):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(theirs, f"{name}_l{layer}{direction}").data.copy_(getattr(gru, f"{name}_l0"))
    return theirs


def test_the_reader_equals_a_packed_bidirectional_gru():
    torch.manual_seed(0)
    reader = GRUEncoder(D, LAYERS, dropout=0.0).double()
    x = noise(B, S, D, seed=1).requires_grad_()
    states, ends = reader(x, LENGTHS)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    theirs, last = copied(reader)(packed)
    expected, _ = pad_packed_sequence(theirs, batch_first=True, total_length=S)
    assert_close(states, expected)
    assert_close(ends, torch.cat([last[-2], last[-1]], dim=-1))
    (gradient,) = torch.autograd.grad((states.sum() + ends.square().sum()), x)
    for row, length in enumerate(LENGTHS.tolist()):
        assert (gradient[row, length:] == 0).all()
        assert (gradient[row, :length] != 0).all()


def test_the_writer_equals_a_gru_step_by_step():
    torch.manual_seed(0)
    writer = GRUDecoder(5, 11, D, LAYERS, dropout=0.0).double()
    theirs = nn.GRU(16, D, LAYERS).double()
    for layer, cell in enumerate(writer.cells):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(theirs, f"{name}_l{layer}").data.copy_(getattr(cell, name))
    words, contexts, hidden = noise(4, B, 5, seed=1), noise(4, B, 11, seed=3), noise(LAYERS, B, D, seed=2)
    expected, last = theirs(torch.cat([words, contexts], dim=-1), hidden)
    for t, read in enumerate(writer.word_gates(words)):
        top, hidden = writer(read, contexts[t], hidden)
        assert_close(top, expected[t])
    assert_close(hidden, last)


def moved(module):
    """Makes gains and biases, which start alike, all different."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer_norm(x, gain, bias):
    return gain * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + bias


def cell_by_hand(x, h, cell, input_norm, state_norm):
    """Computes one step of a layer-normalised GRU in NumPy, gate by gate."""
    n = len(h)
    (w, u, b, c), (gain_x, gain_h) = (
        [each.detach().numpy() for each in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)],
        [each.weight.detach().numpy() for each in (input_norm, state_norm)],
    )
    gates, new = slice(0, 2 * n), slice(2 * n, 3 * n)
    of_x, of_h = (
        layer_norm(w[gates] @ x, gain_x[gates], b[gates]),
        layer_norm(u[gates] @ h, gain_h[gates], c[gates]),
    )
    r, z = np.split(sigmoid(of_x + of_h), 2)
    candidate = np.tanh(layer_norm(w[new] @ x, gain_x[new], b[new]) + r * layer_norm(u[new] @ h, gain_h[new], c[new]))
    return z * h + (1 - z) * candidate


def test_a_normalised_gru_equals_the_formula():
    torch.manual_seed(0)
    gru, x = moved(NormalisedGRU(5, 7).double()), noise(B, S, 5, seed=1)
    states, last = gru(x)
    for row in range(B):
        h = np.zeros(7)
        for t in range(S):
            h = cell_by_hand(x[row, t].numpy(), h, gru.cell, gru.input_norm, gru.state_norm)
            assert_close(states[row, t].detach().numpy(), h)
    assert_close(last[0], states[:, -1])


def test_normalised_cells_of_the_decoder_equal_the_formula():
    torch.manual_seed(0)
    decoder = moved(GRUDecoder(5, 11, D, LAYERS, dropout=0.0, state_norm="layer").double())
    words, context, hidden = noise(B, 5, seed=1), noise(B, 11, seed=3), noise(LAYERS, B, D, seed=2)
    top, after = decoder(decoder.word_gates(words), context, hidden)
    for row in range(B):
        x = torch.cat([words[row], context[row]]).numpy()
        for layer, cell in enumerate(decoder.cells):
            norms = decoder.input_norms[layer], decoder.state_norms[layer]
            x = cell_by_hand(x, hidden[layer, row].numpy(), cell, *norms)
            assert_close(after[layer, row].detach().numpy(), x)
    assert_close(top, after[-1])


@pytest.mark.parametrize(
    ("module", "shapes"),
    [(NormalisedGRU(2, 3), [(2, 3, 2)]), (GRUDecoder(2, 3, 3, 2, 0.0, "layer"), [(2, 9), (2, 3), (2, 2, 3)])],
    ids=["encoder", "decoder"],
)
def test_the_gradients_of_normalised_cells_are_those_of_differences(module, shapes):
    torch.manual_seed(0)
    names, values = zip(*moved(module.double()).named_parameters(), strict=True)
    inputs = [noise(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]

    def run(*given):
        parameters = dict(zip(names, given[len(inputs) :], strict=True))
        return torch.func.functional_call(module, parameters, given[: len(inputs)])[0]

    assert torch.autograd.gradcheck(run, [*inputs, *values])


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_scale_of_the_weights_does_not_matter_where_projections_are_normalised(factor):
    """A law of the norm: LN(s W x) = LN(W x), up to ε, which large inputs make small."""
    torch.manual_seed(0)
    gru, x = NormalisedGRU(5, 7).double(), 1e4 * noise(B, 1, 5, seed=1)
    before = gru(x)[0]
    with torch.no_grad():
        gru.cell.weight_ih *= factor
    assert_close(gru(x)[0], before, rtol=1e-3, atol=1e-3)


def normalised_model(**changes):
    torch.manual_seed(0)
    parts = {"attention": PartSettings("additive"), "position": PartSettings("none"), "dropout": 0.0}
    sizes = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 10, "n_heads": 1}
    settings = ModelSettings(family="recurrent", **{"state_norm": "layer", **parts, **sizes, **changes})
    return build_model(settings, (13, 13))


def test_a_step_of_training_moves_every_gain_and_lowers_the_loss():
    model = normalised_model().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    batch, settings = make_batch([[4, 5, 6], [7]], [[5, 6], [8, 9, 4]]), TrainSettings(lr=1e-2)
    learner, optimiser = LossModule(model, 0.0), make_optimiser(model, settings)
    losses = [float(run_step(learner, optimiser, [batch], 1 / batch.tgt.n_tokens, settings)) for _ in range(5)]
    assert losses[-1] < losses[0]
    gains = [name for name in before if "norm" in name]
    assert len(gains) == 2 * 2 * 2 + 2 * 2  # two layers of two GRUs, two cells: each with two
    for name in gains:
        assert (model.state_dict()[name] != before[name]).all(), name


def test_a_plain_model_has_the_parameters_it_always_had():
    names = set(normalised_model(state_norm="none").state_dict())
    assert not [name for name in names if "norm" in name]
    assert {"encoder.forwards.0.weight_ih_l0", "decoder.cells.1.bias_hh"} <= names


@pytest.mark.parametrize("make", [lambda: GRUEncoder(4, 1, 0.0, "bogus"), lambda: GRUDecoder(4, 4, 4, 1, 0.0, "bogus")])
def test_an_unknown_norm_is_refused(make):
    with pytest.raises(ValueError, match="unknown state_norm 'bogus': valid are none, layer"):
        make()

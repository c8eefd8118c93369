"""The GRUs of the recurrent model against PyTorch's own on packed sequences."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from regard.model.recurrent import GRUDecoder, GRUEncoder
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

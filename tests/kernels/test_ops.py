"""Every operation with a kernel gives on the kernel what it gives in PyTorch, in value and in gradient."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from regard import ops
from regard.attention.contract import masked_softmax
from regard.mask import Mask, causal
from regard.position import ALiBi
from tests.kernels import cases  # noqa: F401  (skips where there is no Triton)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # there kernels run in Triton's interpreter
MASK = Mask(n_keys=7, key_lengths=torch.tensor([7, 4], device=DEVICE))
INNER, OUTER = nn.Linear(6, 10).to(DEVICE), nn.Linear(10, 6).to(DEVICE)


def additive(f_q, f_k, w, v):
    scores = torch.einsum("bhqkf,hf->bhqk", torch.tanh(f_q[:, :, :, None] + f_k[:, :, None]), w)
    return masked_softmax(scores, MASK.tile(range(f_q.shape[2]), range(7), f_q.device)) @ v


def dot(q, k, v, mask, bias=0.0):
    scores = 0.3 * q @ k.transpose(-1, -2) + bias
    return masked_softmax(scores, mask.tile(range(q.shape[2]), range(k.shape[2]), q.device)) @ v


def slopes(q):
    positions = torch.arange(q.shape[2], device=q.device)[None]
    return ALiBi(q.shape[1]).to(q.device).offset_bias(q, positions, positions)


# Of each operation: the call, the same in PyTorch where ops has no such path itself, and the shapes of its inputs.
QKV = [(2, 2, 7, 8), (2, 2, 7, 8), (2, 2, 7, 8)]
FEATURES = [(2, 2, 5, 8), (2, 2, 7, 8), (2, 8), (2, 2, 7, 6)]
NORM = [(2, 3, 6), (2, 3, 6), (6,), (6,)]
CALLS = {
    "linear": (ops.linear, None, [(2, 3, 6), (5, 6), (5,)]),
    "feed forward": (lambda x: ops.feed_forward(x, INNER, OUTER, F.relu, 0.0), None, [(2, 3, 6)]),
    "layer norm": (lambda *given: ops.layer_norm(*given, 1e-5), None, [(2, 3, 6), (6,), (6,)]),
    "add layer norm": (lambda *given: ops.add_layer_norm(*given, 1e-5, 0.0), None, NORM),
    "GRU gates": (ops.gru_gates, None, [(4, 15), (4, 15), (4, 5)]),
    "short attention": (
        lambda q, k, v: ops.short_attention(q, k, v, MASK, 0.3),
        lambda q, k, v: dot(q, k, v, MASK),
        QKV,
    ),
    "relative attention": (
        lambda q, k, v: ops.relative_attention(q, k, v, causal(), slopes(q), 0.3, 0.0),
        lambda q, k, v: dot(q, k, v, causal(), slopes(q).materialise(q.dtype)),
        QKV,
    ),
    "additive attention of few": (lambda *given: ops.additive_few(*given, MASK), additive, FEATURES),
    "additive attention of many": (lambda *given: ops.additive_many(*given, MASK, 0.0, True), additive, FEATURES),
}


@pytest.mark.parametrize("name", CALLS)
def test_kernel_and_pytorch_agree(name, monkeypatch):
    call, plain, shapes = CALLS[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in shapes]
    results, kernels, taken = [], ops.triton_kernels, []
    monkeypatch.setattr(ops, "triton_kernels", lambda: taken.append(name) or kernels())
    for usable, run in ((True, call), (False, plain or call)):
        monkeypatch.setattr(ops, "usable", lambda x, usable=usable: usable)
        out = run(*inputs)
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    assert taken == [name], "the kernel runs where it is usable, and only there"
    for one, other in zip(*results, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_an_update_is_added_where_it_is_not_dropped(monkeypatch):
    monkeypatch.setattr(ops, "usable", lambda x: True)
    x, update = torch.randn(40, 50, device=DEVICE), torch.full((40, 50), 3.0, device=DEVICE)
    added = ops.add_dropout(x, update, 0.25) - x
    kept = added != 0
    assert_close(added[kept], torch.full_like(added[kept], 4.0))
    assert 0.2 < 1 - kept.double().mean() < 0.3
    assert_close(ops.add_dropout(x, update, 0.0), x + update)

"""Additive attention in blocks: many tiles, hidden tiles and both formulas give what the definition gives."""

import pytest
import torch

from regard.attention import blockwise as blocks
from regard.mask import Mask, allow, causal, padding, padding_both, window
from tests.attention.test_contract import dropped_weights
from tests.parts import B, H, K, Q, dense, gradients, leaves, make_attention, make_inputs, noise, some

N_QUERIES, N_KEYS = 13, 1031  # three blocks of keys

LONG_MASKS = {
    "everything": Mask(),
    "causal": causal(),
    "causal after a cache": causal(offset=601),
    "window": window(5, offset=509),
    "wide window": window(401, offset=600),
    "ragged keys": padding([3, 700], N_KEYS),
    "ragged keys per query": padding(torch.arange(B * N_QUERIES).reshape(B, N_QUERIES) * 37, N_KEYS),
    "ragged both": padding_both([7, 1031], N_KEYS) & causal(offset=505),
    "any": allow(some(B, H, N_QUERIES, N_KEYS)),
    "late keys only": allow(torch.arange(N_KEYS).expand(N_QUERIES, N_KEYS) > 600),
}
BIAS_SHAPES = [None, (B, H, N_QUERIES, N_KEYS), (1, H, 1, N_KEYS), (B, 1, N_QUERIES, 1), (1, H, N_QUERIES, N_KEYS)]


@pytest.fixture(params=[1, 2**14, 2**18, 2**20], ids="tiles of {}".format)
def tile(request, monkeypatch):
    """Cuts a call into tiles of one row, of some rows, of some sequences, and leaves it whole."""
    monkeypatch.setitem(blocks.TILE_ELEMENTS, "cpu", request.param)
    return request.param


def assert_same(fast, plain, wanted):
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-10)
    for quick, slow in zip(gradients(fast, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-9)


def long_inputs(bias_shape=None):
    bias = [] if bias_shape is None else [noise(*bias_shape, seed=5)]
    *wanted, bias = leaves(make_inputs("additive", N_QUERIES, N_KEYS) + bias) + ([None] if bias_shape is None else [])
    return wanted, bias


@pytest.mark.parametrize("kind", LONG_MASKS)
def test_many_tiles_equal_the_definition(kind, tile):
    attention, (wanted, _), mask = make_attention("additive"), long_inputs(), LONG_MASKS[kind]
    plain = attention.weights(*wanted[:2], mask) @ wanted[2]
    assert_same(attention(*wanted, mask), plain, [*wanted, *attention.parameters()])


@pytest.mark.parametrize("bias_shape", BIAS_SHAPES[1:], ids=str)
def test_many_tiles_collect_the_gradient_of_the_bias(bias_shape, tile):
    attention, (wanted, bias), mask = make_attention("additive"), long_inputs(bias_shape), LONG_MASKS["ragged both"]
    plain = attention.weights(*wanted[:2], mask, bias) @ wanted[2]
    assert_same(attention(*wanted, mask, bias), plain, [*wanted, bias, *attention.parameters()])


def test_many_tiles_drop_the_same_weights_forward_and_backward(tile):
    attention, (wanted, _), mask = make_attention("additive", dropout=0.4), long_inputs(), LONG_MASKS["wide window"]
    kept = (dropped_weights(attention, *wanted[:2], mask) != 0).double() / 0.6
    plain = (attention.weights(*wanted[:2], mask) * kept) @ wanted[2]
    torch.manual_seed(23)
    assert_same(attention(*wanted, mask), plain, [*wanted, *attention.parameters()])


@pytest.mark.parametrize(("kind", "blocks_per_row"), [("everything", 3), ("causal", 1), ("wide window", 2)])
def test_hidden_tiles_are_not_computed(kind, blocks_per_row, monkeypatch):
    monkeypatch.setitem(blocks.TILE_ELEMENTS, "cpu", 1)  # a tile is one row of one head
    computed, gates = [], blocks.Problem.gates
    monkeypatch.setattr(blocks.Problem, "gates", lambda self, *tile: computed.append(tile) or gates(self, *tile))
    attention, (wanted, _) = make_attention("additive"), long_inputs()
    out = attention(*wanted, LONG_MASKS[kind])
    rows = B * H * N_QUERIES
    assert len(computed) == rows * blocks_per_row
    gradients(out, wanted)
    assert len(computed) == 2 * rows * blocks_per_row


# One feature of the last query and of the first key; where the two cancel, no saturation hides a wrong formula.
BEYOND = {
    "a query": lambda limit: (3 * limit, 0.5),
    "a key": lambda limit: (0.5, -3 * limit),
    "both, and they cancel": lambda limit: (3 * limit, 0.5 - 3 * limit),
    "a query that a key cancels": lambda limit: (limit + 1, 0.5 - limit),
    "a key that a query cancels": lambda limit: (0.5 - limit, limit + 1),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", BEYOND)
def test_features_beyond_the_exponent_limit_equal_the_definition(dtype, case):
    f_q, f_k = noise(B, H, Q, 3, seed=1), noise(B, H, K, 3, seed=2)
    f_q[0, 0, -1, 0], f_k[0, 0, 0, 0] = BEYOND[case](blocks.EXPONENT_LIMIT[dtype])
    f_q, f_k, w, v = wanted = leaves([x.to(dtype) for x in (f_q, f_k, noise(H, 3, seed=3), noise(B, H, K, 5, seed=4))])
    mask = causal()
    assert blocks.make_problem(f_q, f_k, w, v, None, mask, 0.0, 0).large is not None
    fast = blocks.AdditiveBlocks.apply(*wanted, None, mask, 0.0)
    scores = torch.einsum("bhqkf,hf->bhqk", torch.tanh(f_q[:, :, :, None] + f_k[:, :, None]), w)
    plain = scores.masked_fill(~dense(mask), float("-inf")).softmax(dim=-1) @ v
    near = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(fast, plain, **near)
    for quick, slow in zip(gradients(fast, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(quick, slow, **near)


@pytest.mark.parametrize("kind", LONG_MASKS)
@pytest.mark.parametrize("n_queries", [1, blocks.ENOUGH - 1, blocks.ENOUGH])
def test_few_queries_take_no_powers_of_keys_and_equal_the_definition(kind, n_queries):
    attention, (q, k, v) = make_attention("additive"), leaves(make_inputs("additive", n_queries, N_KEYS))
    mask = allow(dense(LONG_MASKS[kind], N_QUERIES, N_KEYS)[:, :, :n_queries])
    plain = attention.weights(q, k, mask) @ v
    assert_same(attention(q, k, v, mask), plain, [q, k, v, *attention.parameters()])
    problem = blocks.make_problem(q, attention.key_features(k), attention.w_v, v, None, mask, 0.0, 0)
    assert (problem.powers is None) == (n_queries < blocks.ENOUGH)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str)
def test_both_formulas_agree_up_to_the_limit(dtype, near, monkeypatch):
    limit = blocks.EXPONENT_LIMIT[dtype]
    # From deep saturation on one side to the other, and sums of opposite features that end near zero.
    f_q = torch.linspace(-limit, limit, Q * 3, dtype=dtype).reshape(1, 1, Q, 3).expand(B, H, Q, 3)
    f_k = torch.linspace(limit, -limit, K * 3, dtype=dtype).reshape(1, 1, K, 3).expand(B, H, K, 3)
    wanted = leaves([f_q, f_k, noise(H, 3, seed=3).to(dtype), noise(B, H, K, 5, seed=4).to(dtype)])
    call = (*wanted, None, Mask(), 0.0)
    assert blocks.make_problem(*call, 0).large is None
    multiplied = blocks.AdditiveBlocks.apply(*call)
    grads = gradients(multiplied, wanted)
    monkeypatch.setitem(blocks.EXPONENT_LIMIT, dtype, 0.0)
    assert blocks.make_problem(*call, 0).large is not None
    added = blocks.AdditiveBlocks.apply(*call)
    torch.testing.assert_close(multiplied, added, rtol=near, atol=near)
    for a, b in zip(grads, gradients(added, wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=near, atol=near)

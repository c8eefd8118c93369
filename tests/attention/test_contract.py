"""The laws that every attention in the table keeps.

The masked softmax against the formula, written out in numpy.
"""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import ATTENTION
from regard.attention.contract import check, masked_softmax, same_width
from regard.mask import Mask, allow, causal, padding, padding_both, window
from tests.parts import (
    BIASES,
    E_VALUE,
    MASKS,
    B,
    E,
    H,
    K,
    Q,
    dense,
    exactly,
    gradients,
    key_width,
    leaves,
    make_attention,
    make_bias,
    make_inputs,
    noise,
)

EVERY = pytest.mark.parametrize("name", ATTENTION)
EVERY_MASK = pytest.mark.parametrize("kind", MASKS)
WITH_EMPTY_ROWS = [kind for kind, make in MASKS.items() if not dense(make(Q, K)).any(dim=-1).all()]
CAUSAL = [kind for kind in MASKS if kind.startswith("causal") or kind == "all rules"]


def definition(attention, q, k, v, mask=Mask(), bias=None):
    return attention.weights(q, k, mask, bias) @ v


@EVERY
@EVERY_MASK
@pytest.mark.parametrize("bias_kind", ["no bias", "full bias"])
def test_rows_sum_to_one_where_some_key_is_allowed(name, kind, bias_kind):
    q, k, _ = make_inputs(name)
    mask = MASKS[kind](Q, K)
    weights = make_attention(name).weights(q, k, mask, make_bias(bias_kind))
    assert weights.min() >= 0
    torch.testing.assert_close(weights.sum(dim=-1), dense(mask).any(dim=-1).double(), rtol=1e-12, atol=1e-12)


@EVERY
@EVERY_MASK
@pytest.mark.parametrize("bias_kind", ["no bias", "full bias"])
def test_forbidden_keys_weigh_exactly_zero(name, kind, bias_kind):
    attention, (q, k, _), mask, bias = make_attention(name), make_inputs(name), MASKS[kind](Q, K), make_bias(bias_kind)
    forbidden = ~dense(mask)
    one_value_each = torch.eye(K, dtype=torch.float64).expand(B, H, K, K)  # reads the weights off the fast path
    for weights in (attention.weights(q, k, mask, bias), attention(q, k, one_value_each, mask, bias)):
        exactly(weights[forbidden], torch.zeros_like(weights[forbidden]))


@EVERY
@pytest.mark.parametrize("kind", WITH_EMPTY_ROWS)
@pytest.mark.parametrize("bias_kind", ["no bias", "fixed bias", "learned bias"])
@pytest.mark.parametrize("path", ["weights", "forward", "forward with dropout"])
def test_empty_row_gives_zeros_and_passes_no_gradient(name, kind, bias_kind, path):
    attention = make_attention(name, dropout=0.5 if path == "forward with dropout" else 0.0)
    q, k, v = leaves(make_inputs(name))
    bias = None if bias_kind == "no bias" else noise(B, H, Q, K, seed=5).requires_grad_(bias_kind == "learned bias")
    mask = MASKS[kind](Q, K)
    empty = ~dense(mask).any(dim=-1)
    torch.manual_seed(2)
    out = definition(attention, q, k, v, mask, bias) if path == "weights" else attention(q, k, v, mask, bias)
    exactly(out[empty], torch.zeros_like(out[empty]))

    wanted = [q, k, v, *attention.parameters()] + ([bias] if bias_kind == "learned bias" else [])
    with torch.autograd.set_detect_anomaly(True):  # a NaN on the way counts, even one that is hidden at the end
        grads = gradients(out, wanted)
    assert all(grad.isfinite().all() for grad in grads)
    exactly(grads[0][empty], torch.zeros_like(q[empty]))
    unseen = ~dense(mask).any(dim=-2)  # keys that no query may look at
    for grad in grads[1:3]:
        exactly(grad[unseen], torch.zeros_like(grad[unseen]))
    if bias_kind == "learned bias":
        exactly(grads[-1][~dense(mask)], torch.zeros_like(grads[-1][~dense(mask)]))
    if kind == "nobody":
        for grad in grads:
            exactly(grad, torch.zeros_like(grad))


@EVERY
@EVERY_MASK
def test_permuting_keys_values_and_mask_together_changes_nothing(name, kind):
    attention, (q, k, v), bias = make_attention(name), make_inputs(name), noise(B, H, Q, K, seed=5)
    order = torch.tensor([3, 6, 0, 5, 1, 4, 2])
    mask = MASKS[kind](Q, K)
    shuffled = allow(dense(mask)[..., order])
    expected = attention(q, k, v, mask, bias)
    torch.testing.assert_close(attention(q, k[:, :, order], v[:, :, order], shuffled, bias[..., order]), expected)


@EVERY
@EVERY_MASK
def test_permuting_queries_permutes_the_output(name, kind):
    attention, (q, k, v), bias = make_attention(name), make_inputs(name), noise(B, H, Q, K, seed=5)
    order = torch.tensor([3, 0, 4, 1, 2])
    mask = MASKS[kind](Q, K)
    shuffled = allow(dense(mask)[:, :, order])
    expected = attention(q, k, v, mask, bias)[:, :, order]
    torch.testing.assert_close(attention(q[:, :, order], k, v, shuffled, bias[:, :, order]), expected)


@EVERY
@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize("bias_kind", ["no bias", "full bias"])
@pytest.mark.parametrize("size", [1.0, 1e5])
def test_changing_the_future_leaves_the_past_bit_identical(name, kind, bias_kind, size):
    attention, (q, k, v), bias = make_attention(name), make_inputs(name), make_bias(bias_kind)
    mask = MASKS[kind](Q, K)
    future = 4
    past = ~dense(mask)[..., future:].any(dim=-1)  # queries that see none of the changed keys
    assert past.any()
    _, other_k, other_v = (size * x for x in make_inputs(name, seed=101))
    changed_k = torch.cat([k[:, :, :future], other_k[:, :, future:]], dim=2)
    changed_v = torch.cat([v[:, :, :future], other_v[:, :, future:]], dim=2)
    exactly(attention(q, changed_k, changed_v, mask, bias)[past], attention(q, k, v, mask, bias)[past])
    exactly(attention.weights(q, changed_k, mask, bias)[past], attention.weights(q, k, mask, bias)[past])


@EVERY
@EVERY_MASK
def test_added_padding_changes_nothing(name, kind):
    attention, (q, k, v), bias = make_attention(name), make_inputs(name), noise(B, H, Q, K, seed=5)
    mask, extra = MASKS[kind](Q, K), 3
    _, garbage_k, garbage_v = (100 * x for x in make_inputs(name, n_keys=extra, seed=101))
    longer = allow(F.pad(dense(mask), (0, extra), value=True)) & padding([K] * B, K + extra)
    padded = (q, torch.cat([k, garbage_k], 2), torch.cat([v, garbage_v], 2), longer, F.pad(bias, (0, extra), value=9.0))
    expected = attention(q, k, v, mask, bias)
    torch.testing.assert_close(attention(*padded), expected)
    torch.testing.assert_close(definition(attention, *padded), expected)


@EVERY
@pytest.mark.parametrize("rule", [Mask(), causal(), window(1)], ids=["everything", "causal", "window"])
def test_padded_queries_give_zeros_and_change_nothing(name, rule):
    attention, (q, k, v), (q_pad, k_pad, v_pad) = make_attention(name), make_inputs(name, 5, 5), make_inputs(name, 2, 2)
    longer = [torch.cat(pair, dim=2) for pair in ((q, q_pad), (k, k_pad), (v, v_pad))]
    out = attention(*longer, rule & padding_both([5, 5], 7))
    torch.testing.assert_close(out[:, :, :5], attention(q, k, v, rule))
    exactly(out[:, :, 5:], torch.zeros(B, H, 2, E_VALUE, dtype=torch.float64))


@EVERY
@EVERY_MASK
@pytest.mark.parametrize("bias_kind", BIASES)
def test_forward_equals_weights_times_values_in_value_and_gradient(name, kind, bias_kind):
    attention, mask, bias = make_attention(name), MASKS[kind](Q, K), make_bias(bias_kind)
    wanted = leaves(make_inputs(name) + ([] if bias is None else [bias]))
    bias = None if bias is None else wanted[3]
    fast, plain = attention(*wanted[:3], mask, bias), definition(attention, *wanted[:3], mask, bias)
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-10)
    wanted += attention.parameters()
    for quick, slow in zip(gradients(fast, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-9)


@EVERY
@EVERY_MASK
def test_forward_equals_its_definition_with_more_queries_than_keys_and_a_fixed_bias(name, kind):
    attention, mask, bias = make_attention(name), MASKS[kind](7, 5), noise(1, H, 7, 5, seed=5)
    wanted = leaves(make_inputs(name, 7, 5))
    fast, plain = attention(*wanted, mask, bias), definition(attention, *wanted, mask, bias)
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-10)
    for quick, slow in zip(gradients(fast, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-9)


@EVERY
@EVERY_MASK
@pytest.mark.parametrize("n_queries", [1, Q])
def test_features_of_keys_that_are_handed_in_change_nothing(name, kind, n_queries):
    attention, mask = make_attention(name), MASKS[kind](n_queries, K)
    wanted = leaves(make_inputs(name, n_queries))
    q, k, v = wanted
    wanted += attention.parameters()
    fast, plain = attention(q, k, v, mask, features=attention.key_features(k)), definition(attention, q, k, v, mask)
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-10)
    for quick, slow in zip(gradients(fast, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-9)


@EVERY
@torch.inference_mode()
def test_features_of_a_key_depend_on_its_own_sequence_alone(name):
    attention, (_, k, _) = make_attention(name), make_inputs(name)
    expected = attention.key_features(k)
    torch.testing.assert_close(attention.key_features(k[1:]), expected[1:])
    _, other, _ = make_inputs(name, seed=101)
    changed = attention.key_features(torch.cat([other[:1], k[1:]]))
    torch.testing.assert_close(changed[1:], expected[1:])


@EVERY
@pytest.mark.parametrize("kind", ["everything", "causal", "any (B, H, Q, K)", "padding of both"])
def test_gradients_of_forward_pass_gradcheck(name, kind):
    attention, mask = make_attention(name), MASKS[kind](Q, K)
    parameters = {key: value.detach().clone().requires_grad_() for key, value in attention.named_parameters()}

    def run(q, k, v, bias, *values):
        call = (q, k, v, mask, bias)
        return torch.func.functional_call(attention, dict(zip(parameters, values, strict=True)), call)

    inputs = leaves([*make_inputs(name), noise(1, H, Q, K, seed=5)])
    assert torch.autograd.gradcheck(run, (*inputs, *parameters.values()), fast_mode=True)


@EVERY
@pytest.mark.parametrize("kind", ["everything", "causal", "all rules"])
@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 6e-2)], ids=str
)
def test_low_precision_stays_near_the_definition(name, kind, dtype, near):
    mask, attention = MASKS[kind](Q, K), make_attention(name).to(dtype)
    rounded = leaves([x.to(dtype) for x in (*make_inputs(name), noise(1, H, Q, K, seed=5))])
    out, weights = attention(*rounded[:3], mask, rounded[3]), attention.weights(*rounded[:2], mask, rounded[3])
    assert out.dtype == weights.dtype == dtype
    grads = gradients(out, [*rounded, *attention.parameters()])

    exact = attention.double()  # the very same rounded numbers
    inputs = leaves([x.double() for x in rounded])
    expected = exact.weights(*inputs[:2], mask, inputs[3])
    torch.testing.assert_close(weights.double(), expected, rtol=near, atol=near)
    torch.testing.assert_close(out.double(), expected @ inputs[2], rtol=near, atol=near)
    for grad, exact_grad in zip(grads, gradients(expected @ inputs[2], [*inputs, *exact.parameters()]), strict=True):
        torch.testing.assert_close(grad.double(), exact_grad, rtol=near, atol=4 * near)


@EVERY
@pytest.mark.parametrize("kind", ["everything", "causal", "window"])
def test_no_key_at_all_gives_zeros_and_passes_no_gradient(name, kind):
    attention, inputs, mask = make_attention(name), leaves(make_inputs(name, n_keys=0)), MASKS[kind](Q, 0)
    exactly(attention.weights(*inputs[:2], mask), torch.zeros(B, H, Q, 0, dtype=torch.float64))
    out = attention(*inputs, mask)
    exactly(out, torch.zeros(B, H, Q, E_VALUE, dtype=torch.float64))
    for grad in gradients(out, inputs):
        exactly(grad, torch.zeros_like(grad))


@EVERY
@pytest.mark.parametrize("kind", ["everything", "causal", "padding", "padding per query"])
def test_no_query_gives_an_empty_result(name, kind):
    attention, inputs, mask = make_attention(name), leaves(make_inputs(name, n_queries=0)), MASKS[kind](0, K)
    assert attention.weights(*inputs[:2], mask).shape == (B, H, 0, K)
    out = attention(*inputs, mask)
    assert out.shape == (B, H, 0, E_VALUE)
    for grad in gradients(out, inputs):
        exactly(grad, torch.zeros_like(grad))


@EVERY
def test_an_empty_batch_gives_an_empty_result(name):
    assert make_attention(name)(*make_inputs(name, batch=0)).shape == (0, H, Q, E_VALUE)


@EVERY
@pytest.mark.parametrize("mask", [Mask(), causal(), window(0), padding([1, 1], 1)], ids=lambda mask: repr(mask)[:40])
def test_one_query_with_one_key_takes_its_value(name, mask):
    q, k, v = make_inputs(name, 1, 1)
    torch.testing.assert_close(make_attention(name)(q, k, v, mask), v)


@EVERY
def test_equal_keys_share_the_weight_evenly(name):
    q, k, v = make_inputs(name)
    same = k[:, :, :1].expand_as(k)
    torch.testing.assert_close(make_attention(name)(q, same, v), v.mean(dim=2, keepdim=True).expand(B, H, Q, E_VALUE))


@EVERY
@pytest.mark.parametrize(
    "mask",
    [Mask(), causal(), causal(601) & window(397, 601), padding([1009], 1031)],
    ids=["everything", "causal", "window after a cache", "padding"],
)
def test_long_inputs_equal_their_definition(name, mask):
    # Longer than what the kernels, ours and PyTorch's, take as one tile of queries or keys.
    attention, wanted = make_attention(name), leaves(make_inputs(name, 211, 1031, batch=1))
    fast, plain = attention(*wanted, mask), definition(attention, *wanted, mask)
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)
    wanted += attention.parameters()
    for quick, slow in zip(gradients(fast, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-8, atol=1e-8)


def dropped_weights(attention, q, k, mask=Mask(), bias=None) -> Tensor:
    """Reads the weights that forward used: it is linear in the values, so each key gets a unit vector for a value."""
    n_keys = k.shape[2]
    torch.manual_seed(23)
    return attention(q, k, torch.eye(n_keys, dtype=q.dtype).expand(*k.shape[:2], n_keys, n_keys), mask, bias)


@EVERY
def test_no_weight_is_dropped_outside_training(name):
    attention, inputs = make_attention(name, dropout=0.5).eval(), make_inputs(name)
    torch.testing.assert_close(attention(*inputs), definition(attention, *inputs))
    torch.testing.assert_close(dropped_weights(attention, *inputs[:2]), attention.weights(*inputs[:2]))


@EVERY
@EVERY_MASK
def test_a_weight_is_dropped_or_scaled_up(name, kind):
    attention, (q, k, _), mask = make_attention(name, dropout=0.3), make_inputs(name), MASKS[kind](Q, K)
    weights, dropped = attention.weights(q, k, mask), dropped_weights(attention, q, k, mask)
    kept = dropped != 0
    torch.testing.assert_close(dropped, weights / 0.7 * kept, rtol=1e-12, atol=1e-12)
    if kind != "nobody":
        share = (dense(mask) & ~kept).sum() / dense(mask).sum()
        assert 0.1 < share < 0.6


@EVERY
@pytest.mark.parametrize("kind", ["everything", "all rules"])
def test_mean_over_many_draws_of_dropout_is_the_weights(name, kind):
    n, dropout, mask = 2003, 0.3, dense(MASKS[kind](Q, K))[:1]
    attention, (q, k, _) = make_attention(name, dropout), make_inputs(name)
    weights = attention.weights(q[:1], k[:1], allow(mask))
    drawn = dropped_weights(attention, *(x[:1].expand(n, -1, -1, -1) for x in (q, k)), allow(mask))
    five_sigma = 5 * (dropout / (1 - dropout) / n) ** 0.5  # of a weight of 1
    torch.testing.assert_close(drawn.mean(dim=0, keepdim=True), weights, rtol=five_sigma, atol=1e-12)


@EVERY
def test_dropout_is_repeated_by_the_seed(name):
    attention, inputs = make_attention(name, dropout=0.5), make_inputs(name)
    outs = []
    for seed in (3, 3, 5):
        torch.manual_seed(seed)
        outs.append(attention(*inputs))
    exactly(outs[0], outs[1])
    assert not outs[0].equal(outs[2])


@EVERY
@EVERY_MASK
@pytest.mark.parametrize("bias_kind", ["no bias", "bias per head and key"])
def test_gradient_under_dropout_is_that_of_the_materialised_weights(name, kind, bias_kind):
    attention, mask, bias = make_attention(name, dropout=0.4), MASKS[kind](Q, K), make_bias(bias_kind)
    wanted = leaves(make_inputs(name) + ([] if bias is None else [bias]))
    bias = None if bias is None else wanted[3]
    kept = (dropped_weights(attention, *wanted[:2], mask, bias) != 0).double() / 0.6
    plain = (attention.weights(*wanted[:2], mask, bias) * kept) @ wanted[2]
    torch.manual_seed(23)
    fast = attention(*wanted[:3], mask, bias)
    torch.testing.assert_close(fast, plain, rtol=1e-10, atol=1e-10)
    wanted += attention.parameters()
    for quick, slow in zip(gradients(fast, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-9, atol=1e-9)


@EVERY
@pytest.mark.parametrize("dropout", [-0.25, 1.0, 1.5, float("nan")])
def test_dropout_outside_its_range_is_refused(name, dropout):
    with pytest.raises(ValueError, match=rf"dropout must lie in \[0, 1\), got {dropout}"):
        make_attention(name, dropout)


WRONG_SIZES = {
    "three axes": (lambda q, k, v: (q[0], k, v), r"must be \(B, H, length, width\), got q \(3, 5, 11\)"),
    "another batch": (lambda q, k, v: (q, k[:1], v), r"must share batch and heads, got .* k \(1, 3, 7, 1[13]\)"),
    "other heads": (lambda q, k, v: (q, k, v[:, :2]), r"must share batch and heads, got .* v \(2, 2, 7, 17\)"),
    "fewer values": (lambda q, k, v: (q, k, v[:, :, :4]), r"one value for each key, got .* v \(2, 3, 4, 17\)"),
}
WRONG_BIASES = [(B, H, Q), (H, Q, K), (Q, K), (1, 1, 1), (B, H, Q, K + 1), (B, H + 1, Q, K), (B + 1, H, Q, K), (1,) * 5]


@EVERY
@pytest.mark.parametrize("case", WRONG_SIZES)
def test_sizes_that_do_not_fit_together_are_refused(name, case):
    change, message = WRONG_SIZES[case]
    with pytest.raises(ValueError, match=message):
        make_attention(name)(*change(*make_inputs(name)))


@pytest.mark.parametrize("shape", WRONG_BIASES, ids=str)
def test_a_bias_of_another_shape_is_refused(shape):
    said = rf"a bias must broadcast to .* = \(2, 3, 5, 7\), got shape \({', '.join(map(str, shape))},?\)"
    with pytest.raises(ValueError, match=said):
        check(*make_inputs("dot"), Mask(), torch.zeros(shape))


@EVERY
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (allow(torch.ones(Q, K + 1, dtype=torch.bool)), r"= \(2, 3, 5, 7\), got shape \(1, 1, 5, 8\)"),
        (allow(torch.ones(B, H + 1, Q, K, dtype=torch.bool)), r"= \(2, 3, 5, 7\), got shape \(2, 4, 5, 7\)"),
        (padding([3, 4, 5], K), r"key_lengths must have shape \(2,\) or \(2, 5\), got \(3,\)"),
        (padding(torch.tensor([[3, 4], [5, 6]]), K), r"key_lengths must have shape \(2,\) or \(2, 5\), got \(2, 2\)"),
        (padding([3, 4], K + 2), "made for 9 keys, got 7 keys"),
        (padding_both([3, 4, 5], K), r"must have shape \(2,\).*, got \(3,\)"),
    ],
    ids=range(6),
)
def test_a_mask_made_for_other_sizes_is_refused(name, mask, message):
    attention, (q, k, v) = make_attention(name), make_inputs(name)
    with pytest.raises(ValueError, match=message):
        attention(q, k, v, mask)
    with pytest.raises(ValueError, match=message):
        attention.weights(q, k, mask)


@pytest.mark.parametrize("name", [name for name in ATTENTION if key_width(name) == E])
def test_widths_that_differ_are_refused_where_one_is_needed(name):
    attention, (q, k, v) = make_attention(name), make_inputs(name)
    for call in (lambda: attention(q, k[..., :9], v), lambda: attention.weights(q, k[..., :9])):
        with pytest.raises(ValueError, match="queries and keys of one width, got 11 and 9"):
            call()


@pytest.mark.parametrize("name", [name for name in ATTENTION if key_width(name) != E])
def test_a_width_that_the_parameters_do_not_have_is_refused(name):
    attention, (q, k, v) = make_attention(name), make_inputs(name)
    for call in (
        lambda: attention(q[..., :9], k, v),
        lambda: attention(q, k[..., :9], v),
        lambda: attention.weights(q[..., :9], k),
        lambda: attention.weights(q, k[..., :9]),
    ):
        with pytest.raises(ValueError, match=r"\b9\b"):
            call()


@pytest.mark.parametrize("name", [name for name in ATTENTION if list(make_attention(name).parameters())])
@pytest.mark.parametrize("n_heads", [1, 2])
def test_a_number_of_heads_that_the_parameters_do_not_have_is_refused(name, n_heads):
    attention, (q, k, v) = make_attention(name), (x[:, :n_heads] for x in make_inputs(name))
    with pytest.raises(ValueError, match=rf"\b{n_heads}\b"):
        attention(q, k, v)
    with pytest.raises(ValueError, match=rf"\b{n_heads}\b"):
        attention.weights(q, k)


def test_same_width_says_both_widths():
    same_width(torch.zeros(2, 3), torch.zeros(5, 3), "a test")
    with pytest.raises(ValueError, match="a test needs queries and keys of one width, got 3 and 5"):
        same_width(torch.zeros(2, 3), torch.zeros(2, 5), "a test")


@pytest.mark.parametrize("name", ATTENTION)
def test_one_head_alone_is_that_head_among_all(name):
    attention, (q, k, _) = make_attention(name), make_inputs(name)
    every = attention.weights(q, k)
    for h in range(H):
        alone = attention.head(h)
        torch.testing.assert_close(alone.weights(q[:, h : h + 1], k[:, h : h + 1]), every[:, h : h + 1])
    torch.testing.assert_close(attention.weights(q, k), every)  # which has lost none of its own


def test_a_parameter_of_all_heads_goes_with_each():
    shared = ATTENTION["gaussian"](n_heads=1).double()
    with torch.no_grad():
        shared.w.fill_(0.7)
    q, k, _ = make_inputs("gaussian")
    torch.testing.assert_close(shared.head(2).weights(q[:, 2:3], k[:, 2:3]), shared.weights(q, k)[:, 2:3])


WITHOUT_TYPE_HOOK = """
import torch
from regard.attention import ATTENTION
from regard.mask import Mask
from tests.attention.test_contract import WRONG_BIASES, WRONG_SIZES
from tests.parts import make_attention, make_inputs

for name in ATTENTION:
    attention, inputs = make_attention(name), make_inputs(name)
    calls = {case: (*change(*inputs), Mask(), None) for case, (change, _) in WRONG_SIZES.items()}
    calls |= {f"bias {shape}": (*inputs, Mask(), torch.zeros(shape)) for shape in WRONG_BIASES}
    for case, (q, k, v, mask, bias) in calls.items():
        for way in ("forward", "weights"):
            try:
                attention(q, k, v, mask, bias) if way == "forward" else attention.weights(q, k, mask, bias)
            except ValueError as error:
                if "got" not in str(error):
                    print(name, case, way, repr(error))
            except Exception as error:
                print(name, case, way, repr(error))
            else:
                if way == "forward" or case not in ("other heads", "fewer values"):  # weights take no values
                    print(name, case, way, "is not refused")
"""


def test_users_without_the_type_hook_get_our_messages(pytestconfig):
    # The hook that checks shapes in tests speaks before we do, so this runs in a Python without it.
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_TYPE_HOOK], cwd=pytestconfig.rootpath, capture_output=True, text=True, check=True
    )
    assert run.stdout == ""


def by_hand(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Divides each allowed exponential by their sum, row after row."""
    weights = np.zeros_like(scores)
    for row in np.ndindex(scores.shape[:-1]):
        keys = np.flatnonzero(allowed[row])
        if len(keys):
            exponentials = np.exp(scores[row][keys] - scores[row][keys].max())
            weights[row][keys] = exponentials / exponentials.sum()
    return weights


@pytest.mark.parametrize("kind", MASKS)
def test_equals_the_formula(kind):
    scores, allowed = 5 * noise(B, H, Q, K, seed=1), dense(MASKS[kind](Q, K))
    torch.testing.assert_close(
        masked_softmax(scores, allowed), torch.from_numpy(by_hand(scores.numpy(), allowed.numpy()))
    )


def test_without_a_mask_is_the_plain_softmax():
    scores = noise(B, H, Q, K, seed=1)
    torch.testing.assert_close(masked_softmax(scores, None), scores.softmax(dim=-1))


def test_a_number_added_to_a_row_changes_nothing():
    scores, allowed = noise(B, H, Q, K, seed=1), dense(MASKS["all rules"](Q, K))
    torch.testing.assert_close(
        masked_softmax(scores + 700 * noise(B, H, Q, 1, seed=2), allowed), masked_softmax(scores, allowed)
    )


def test_what_a_forbidden_score_is_does_not_matter():
    scores, allowed = noise(B, H, Q, K, seed=1), dense(MASKS["all rules"](Q, K))
    for anything in (1e300, -1e300, float("-inf")):
        changed = torch.where(allowed | ~allowed.any(dim=-1, keepdim=True), scores, anything)
        exactly(masked_softmax(changed, allowed), masked_softmax(scores, allowed))


@pytest.mark.parametrize("name", ATTENTION)
def test_a_second_derivative_is_right_or_refused(name):
    attention, (q, k, v) = make_attention(name), leaves(make_inputs(name))

    def penalty(out):
        (d_q,) = torch.autograd.grad(out.sum(), q, create_graph=True)
        return torch.autograd.grad(d_q.square().sum(), [q, k, v])

    expected = penalty(attention.weights(q, k) @ v)
    try:
        found = penalty(attention(q, k, v))
    except RuntimeError as error:
        assert "derivative" in str(error)
        return
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y)

"""Each score against NumPy, dot products against PyTorch too, Gaussian scores of data far from zero, sizes."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.attention import Additive, Bilinear, Dot, Gaussian, ScaledDot
from regard.mask import Mask
from tests.attention.test_contract import by_hand
from tests.parts import E_KEY, MASKS, B, E, H, K, Q, dense, gradients, leaves, make_attention, make_inputs, noise


@pytest.mark.parametrize("kind", MASKS)
def test_bilinear_equals_numpy(kind):
    attention, (q, k, v), mask = make_attention("bilinear"), make_inputs("bilinear"), MASKS[kind](Q, K)
    w = attention.w.detach().numpy()
    scores = np.zeros((B, H, Q, K))
    for b, h, i, j in np.ndindex(scores.shape):
        scores[b, h, i, j] = q[b, h, i].numpy() @ w[h] @ k[b, h, j].numpy()
    weights = by_hand(scores, dense(mask).numpy())
    torch.testing.assert_close(attention.scores(q, k), torch.from_numpy(scores))
    torch.testing.assert_close(attention(q, k, v, mask), torch.from_numpy(weights @ v.numpy()))


def test_with_the_identity_is_a_dot_product():
    attention, inputs = Bilinear(H, E, E).double(), make_inputs("dot")
    with torch.no_grad():
        attention.w.copy_(torch.eye(E))
    torch.testing.assert_close(attention(*inputs), Dot()(*inputs))


def test_starts_with_scores_of_variance_one():
    torch.manual_seed(3)
    attention, q, k = Bilinear(1, 61, 67), torch.randn(1, 1, 211, 61), torch.randn(1, 1, 223, 67)
    assert attention.scores(q, k).var().item() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("attention", "scale"), [(Dot(), 1.0), (ScaledDot(), 1 / math.sqrt(11))], ids=["dot", "scaled"]
)
@pytest.mark.parametrize("kind", MASKS)
def test_dot_equals_numpy(attention, scale, kind):
    (q, k, v), mask = make_inputs("dot"), MASKS[kind](Q, K)
    scores = np.zeros((B, H, Q, K))
    for b, h, i, j in np.ndindex(scores.shape):
        scores[b, h, i, j] = scale * sum(q[b, h, i, e].item() * k[b, h, j, e].item() for e in range(E))
    weights = by_hand(scores, dense(mask).numpy())
    torch.testing.assert_close(attention.scores(q, k), torch.from_numpy(scores))
    torch.testing.assert_close(attention(q, k, v, mask), torch.from_numpy(weights @ v.numpy()))


@pytest.mark.parametrize("kind", [kind for kind, make in MASKS.items() if dense(make(Q, K)).any(dim=-1).all()])
def test_scaled_dot_equals_pytorch_in_value_and_gradient(kind):
    wanted, mask = leaves(make_inputs("scaled_dot")), MASKS[kind](Q, K)
    ours = ScaledDot()(*wanted, mask)
    theirs = F.scaled_dot_product_attention(*wanted, attn_mask=dense(mask))
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(gradients(ours, wanted), gradients(theirs, wanted), strict=True):
        torch.testing.assert_close(a, b)


def test_scaled_dot_with_a_bias_equals_pytorch():
    (q, k, v), bias = make_inputs("scaled_dot"), noise(1, H, Q, K, seed=5)
    torch.testing.assert_close(
        ScaledDot()(q, k, v, Mask(), bias), F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    )


def test_a_scaled_dot_is_a_dot_of_scaled_queries():
    q, k, v = make_inputs("dot")
    torch.testing.assert_close(ScaledDot()(q, k, v), Dot()(q / math.sqrt(E), k, v))


@pytest.mark.parametrize("width", [3, 67])
def test_the_scale_keeps_unit_variance(width):
    q, k = noise(1, 1, 211, width, seed=1), noise(1, 1, 223, width, seed=2)
    near = pytest.approx(1.0, abs=0.1)
    assert ScaledDot().scores(q, k).var().item() == near
    assert Dot().scores(q, k).var().item() / width == near


@pytest.mark.parametrize("value_width", [1, 5, 29])
def test_values_may_have_a_width_of_their_own(value_width):
    attention, (q, k, _) = make_attention("scaled_dot"), make_inputs("scaled_dot")
    v = noise(B, H, K, value_width, seed=3)
    torch.testing.assert_close(attention(q, k, v), attention.weights(q, k) @ v)


@pytest.mark.parametrize("kind", MASKS)
def test_gaussian_equals_numpy(kind):
    attention, (q, k, v), mask = make_attention("gaussian"), make_inputs("gaussian"), MASKS[kind](Q, K)
    w = attention.w.detach().numpy()
    scores = np.zeros((B, H, Q, K))
    for b, h, i, j in np.ndindex(scores.shape):
        scores[b, h, i, j] = -np.sum(((q[b, h, i] - k[b, h, j]).numpy() * w[h]) ** 2) / 2
    weights = by_hand(scores, dense(mask).numpy())
    torch.testing.assert_close(attention.scores(q, k), torch.from_numpy(scores))
    torch.testing.assert_close(attention(q, k, v, mask), torch.from_numpy(weights @ v.numpy()))


def test_the_nearest_key_weighs_most():
    k = torch.tensor([0.0, 1.0, 3.0]).reshape(1, 1, 3, 1)
    weights = Gaussian().weights(torch.tensor([0.9]).reshape(1, 1, 1, 1), k)
    assert weights.flatten().argmax() == 1


def test_bandwidth_is_learned_or_fixed():
    assert [p.requires_grad for p in (Gaussian(H).w, Gaussian(H, bandwidth="fixed").w)] == [True, False]
    inputs = leaves(make_inputs("gaussian"))
    fixed, learned = Gaussian(H, bandwidth="fixed").double(), Gaussian(H).double()
    torch.testing.assert_close(fixed(*inputs), learned(*inputs))
    assert gradients(learned(*inputs), [learned.w])[0].abs().min() > 0


def test_an_unknown_bandwidth_is_refused():
    with pytest.raises(ValueError, match=r"unknown bandwidth 'fixd': did you mean 'fixed'\? valid are fixed, learned"):
        Gaussian(H, bandwidth="fixd")


def test_one_bandwidth_serves_all_heads():
    inputs = make_inputs("gaussian")
    torch.testing.assert_close(Gaussian().double()(*inputs), Gaussian(H).double()(*inputs))


def test_moving_queries_and_keys_together_changes_nothing():
    attention, (q, k, v) = make_attention("gaussian"), make_inputs("gaussian")
    torch.testing.assert_close(attention(q + 1e4, k + 1e4, v), attention(q, k, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("width", [1, 67])
@pytest.mark.parametrize("kind", ["everything", "all rules"])
def test_data_far_from_zero_stay_near_the_definition(dtype, width, kind):
    attention, mask = make_attention("gaussian").to(dtype), MASKS[kind](Q, K)
    years = (2000 + width**-0.5 * noise(B, H, n, width, seed=n) for n in (Q, K))
    inputs = leaves([x.to(dtype) for x in (*years, noise(B, H, K, E, seed=3))])
    out = attention(*inputs, mask)
    grads = gradients(out, inputs)

    exact, inputs = attention.double(), leaves([x.double() for x in inputs])
    expected = exact.weights(*inputs[:2], mask) @ inputs[2]
    near = {torch.float32: 1e-5, torch.float64: 1e-11}[dtype]
    torch.testing.assert_close(out.double(), expected, rtol=near, atol=near)
    for grad, exact_grad in zip(grads, gradients(expected, inputs), strict=True):
        torch.testing.assert_close(grad.double(), exact_grad, rtol=near, atol=near)


@pytest.mark.parametrize("spread", [10.0, 100.0, 1000.0, 3000.0, 1e5])
@pytest.mark.parametrize("width", [1, 5])
def test_spread_data_stay_near_the_definition_in_float32(spread, width):
    attention = Gaussian(H)
    k = (spread * torch.rand(B, H, 101, width, generator=torch.Generator().manual_seed(1))).float()
    q, v = k[:, :, :Q] + noise(B, H, Q, width, seed=2).float(), noise(B, H, 101, E, seed=3).float()
    inputs = leaves([q, k, v])
    wanted = [*inputs, attention.w]
    plain = attention.weights(*inputs[:2]) @ inputs[2]
    out = attention(*inputs)
    torch.testing.assert_close(out, plain, rtol=2e-4, atol=2e-4)
    for grad, exact in zip(gradients(out, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(grad, exact, rtol=1e-3, atol=1e-3)


LONG_KEYS = {
    "far from zero": lambda k: 50 + k,
    "far from each other": lambda k: 50 * k,
}


@pytest.mark.parametrize(("dtype", "near"), [(torch.float16, 2e-2), (torch.bfloat16, 6e-2)], ids=str)
@pytest.mark.parametrize("case", LONG_KEYS)
def test_long_keys_stay_near_the_definition_in_half_precision(dtype, near, case):
    # Half of ‖k‖² is about 84 000 here, more than float16 can hold.
    attention, k = Gaussian(H, bandwidth="fixed"), LONG_KEYS[case](noise(B, H, K, 67, seed=1))
    q, v = k[:, :, :Q] + 0.5 * noise(B, H, Q, 67, seed=2), noise(B, H, K, E, seed=3)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    expected = attention.double().weights(q.double(), k.double()) @ v.double()
    torch.testing.assert_close(attention.to(dtype)(q, k, v).double(), expected, rtol=near, atol=near)


@pytest.mark.parametrize("kind", MASKS)
def test_additive_equals_numpy(kind):
    attention, (q, k, v), mask = make_attention("additive"), make_inputs("additive"), MASKS[kind](Q, K)
    w_q, w_k, w_v = (w.detach().numpy() for w in (attention.w_q, attention.w_k, attention.w_v))
    scores = np.zeros((B, H, Q, K))
    for b, h, i, j in np.ndindex(scores.shape):
        scores[b, h, i, j] = w_v[h] @ np.tanh(w_q[h].T @ q[b, h, i].numpy() + w_k[h].T @ k[b, h, j].numpy())
    weights = by_hand(scores, dense(mask).numpy())
    torch.testing.assert_close(attention.scores(q, k), torch.from_numpy(scores))
    torch.testing.assert_close(attention(q, k, v, mask), torch.from_numpy(weights @ v.numpy()))


@pytest.mark.parametrize("hidden", [1, 2, 29])
def test_any_number_of_hidden_units(hidden):
    torch.manual_seed(1)
    attention, (q, k, v) = Additive(H, E, E_KEY, hidden).double(), make_inputs("additive")
    assert attention.w_v.shape == (H, hidden)
    torch.testing.assert_close(attention(q, k, v), attention.weights(q, k) @ v)


@pytest.mark.parametrize("hidden", [0, -3])
def test_no_hidden_unit_is_refused(hidden):
    with pytest.raises(ValueError, match=f"hidden must be 1 or more units, got {hidden}"):
        Additive(H, E, E_KEY, hidden)


def test_scores_stay_within_the_sum_of_weights():
    attention, (q, k, _) = make_attention("additive"), make_inputs("additive")
    bound = attention.w_v.abs().sum(dim=-1)[:, None, None]
    assert (attention.scores(1e3 * q, 1e3 * k).abs() <= bound + 1e-12).all()

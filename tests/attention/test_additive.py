"""The additive score against numpy, and its sizes."""

import numpy as np
import pytest
import torch

from regard.attention import Additive
from tests.attention.test_contract import by_hand
from tests.parts import E_KEY, MASKS, B, E, H, K, Q, dense, make_attention, make_inputs


@pytest.mark.parametrize("kind", MASKS)
def test_equals_numpy(kind):
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

"""The bilinear score against numpy."""

import numpy as np
import pytest
import torch

from regard.attention import Bilinear, Dot
from tests.attention.test_softmax import by_hand
from tests.parts import MASKS, B, E, H, K, Q, dense, make_attention, make_inputs


@pytest.mark.parametrize("kind", MASKS)
def test_equals_numpy(kind):
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

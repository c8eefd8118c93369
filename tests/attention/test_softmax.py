"""The masked softmax against the formula, written out in numpy."""

import numpy as np
import pytest
import torch

from regard.attention.softmax import masked_softmax
from tests.parts import MASKS, B, H, K, Q, dense, exactly, noise


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

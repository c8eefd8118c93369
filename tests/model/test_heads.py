"""Splitting and merging heads."""

from regard.model.heads import merge_heads, split_heads
from tests.parts import B, E, H, Q, exactly, noise


def test_each_head_gets_its_own_features_side_by_side():
    x = noise(B, Q, H * E, seed=1)
    for h in range(H):
        exactly(split_heads(x, H)[:, h], x[..., h * E : (h + 1) * E])


def test_merging_undoes_splitting():
    x = noise(B, Q, H * E, seed=1)
    exactly(merge_heads(split_heads(x, H)), x)

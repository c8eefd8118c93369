"""Both families learn to reverse strings, by the way that a user's run takes."""

import pytest

from tests.train.tiny import exact_share, make_settings, reversals, run_training, write_tsv

# Steps are few and small; the rate falls to nothing, so that the last step is the best.
QUICK = {"batch_tokens": 256, "schedule": "cosine", "label_smoothing": 0.0, "log_every": 100, "save_every": 1000}
FAMILIES = {
    "transformer": (
        {"d_model": 64, "n_heads": 2, "d_ff": 128, "norm_place": "before"},
        {"lr": 4e-3, "warmup": 50, "max_steps": 800, "valid_every": 800},
    ),
    "recurrent": (
        {
            "family": "recurrent",
            "d_model": 64,
            "n_heads": 1,
            "attention": {"name": "additive"},
            "position": {"name": "none"},
        },
        {"lr": 5e-3, "warmup": 30, "max_steps": 450, "valid_every": 450},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_strings_are_reversed_that_were_never_seen(family, tmp_path):
    model, learning = FAMILIES[family]
    pairs = reversals(4000, seed=1)
    text = write_tsv(tmp_path / "pairs.tsv", pairs[300:])
    run_training(make_settings(text, {"model": model, "train": {**QUICK, **learning, "seed": 1}}), tmp_path / "run")
    assert exact_share(tmp_path / "run", pairs[:300]) >= 0.99

"""A model that has learned to copy with some words reordered, so that it is known which words belong together."""

import random

from regard.align.links import Gold
from tests.train.tiny import make_settings, run_training, write_tsv

LETTERS, DIGITS = "abcdefghijkl", "01234"
MODEL = {"d_model": 32, "n_heads": 2, "d_ff": 64, "norm_place": "before"}
LEARNING = {
    "batch_tokens": 256,
    "lr": 8e-3,
    "warmup": 40,
    "max_steps": 300,
    "valid_every": 300,
    "schedule": "cosine",
    "label_smoothing": 0.0,
    "log_every": 1000,
    "save_every": 1000,
    "seed": 1,
}


def order(words):
    """Gives the source word of each target word: a digit changes places with a letter after it, all else stays."""
    places, at = list(range(len(words))), 0
    while at + 1 < len(words):
        swaps = words[at].isdigit() and not words[at + 1].isdigit()
        if swaps:
            places[at], places[at + 1] = at + 1, at
        at += 1 + swaps
    return places


def make_pairs(n, seed):
    """Draws n different sentences, each with its copy."""
    chance, found = random.Random(seed), {}
    while len(found) < n:
        words = [chance.choice(LETTERS if chance.random() < 0.7 else DIGITS) for _ in range(chance.randint(4, 7))]
        found[" ".join(words)] = " ".join(words[place] for place in order(words))
    return list(found.items())


def gold_links(pairs):
    """Gives the links that are known, all of them sure."""
    links = [frozenset((i, j) for j, i in enumerate(order(src.split()))) for src, _ in pairs]
    return [Gold(each, each) for each in links]


def learned_once(tmp_path_factory):
    """Gives the folder of a run that all tests of a session share, and pairs that it has not seen."""
    pairs = make_pairs(3000, seed=1)
    folder = tmp_path_factory.getbasetemp() / "reordered"
    if not folder.exists():
        text = write_tsv(folder.with_suffix(".tsv"), pairs[200:])
        changes = {"text": {"vocab_size": 64}, "model": MODEL, "train": LEARNING}
        run_training(make_settings(text, changes), folder)
    return folder, pairs[:200]

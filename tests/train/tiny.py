"""Runs so small that they take seconds: strings to be reversed, and settings that learn it."""

import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import regard
from regard.config import Settings, merge, parse_settings
from regard.train.trainer import Outcome, train
from tests.processes import start

SYMBOLS = "abcdefghij"

# Letters are words here, so a piece is a letter; there are 14 pieces with the four special ones.
TABLES: dict[str, Any] = {
    "data": {"valid_size": 64, "src_lang": "src", "tgt_lang": "tgt"},
    "text": {"vocab_size": 32, "byte_fallback": False},
    "model": {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 16, "n_heads": 2, "d_ff": 32, "dropout": 0.0},
    "train": {
        "batch_tokens": 256,
        "max_steps": 12,
        "warmup": 4,
        "valid_every": 4,
        "save_every": 4,
        "log_every": 2,
        "valid_sentences": 8,
        "device": "cpu",
    },
}


def reversals(n: int, seed: int, longest: int = 8) -> list[tuple[str, str]]:
    """Draw n different strings of 3 and more symbols, each with its reversal."""
    chance = random.Random(seed)
    result: dict[str, str] = {}
    while len(result) < n:
        symbols = [chance.choice(SYMBOLS) for _ in range(chance.randint(3, longest))]
        result[" ".join(symbols)] = " ".join(reversed(symbols))
    return list(result.items())


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    """Write pairs as a user has them."""
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return path


def make_settings(text: Path, *changes: dict[str, Any]) -> Settings:
    """Return the settings of a tiny run on a text."""
    return parse_settings(Settings, merge(TABLES, {"data": {"train": [str(text)]}}, *changes))


def run_training(made: Settings, folder: Path) -> Outcome:
    """Train without plots."""
    return train(made, folder, lambda progress: None)


def train_until_killed(made: Settings, folder: Path, step: int) -> int | None:
    """Train in a process of its own, which kills itself when it validates at a step; return its exit code."""
    process = start(_train_and_die, made, folder, step)
    process.join()
    return process.exitcode


def _train_and_die(made: Settings, folder: Path, step: int) -> None:
    train(made, folder, lambda progress: os.kill(os.getpid(), signal.SIGKILL) if progress.step == step else None)


def exact_share(model: Path, pairs: list[tuple[str, str]]) -> float:
    """Return the share of greedy translations that are the reference, letter by letter."""
    translator = regard.load(model)
    greedy = replace(translator.settings, method="greedy")
    result = translator.translate([src for src, _ in pairs], greedy)
    return sum(one.text == tgt for one, (_, tgt) in zip(result, pairs, strict=True)) / len(pairs)


def trained_once(tmp_path_factory: Any) -> Path:
    """Return the folder of a tiny run that all tests of a session share, and that none may change."""
    folder = tmp_path_factory.getbasetemp() / "trained"
    if not folder.exists():
        text = write_tsv(folder.with_suffix(".tsv"), reversals(300, seed=5))
        test = write_tsv(folder.with_suffix(".test.tsv"), reversals(10, seed=6, longest=5))
        run_training(make_settings(text, {"data": {"test": [str(test)]}}), folder)
    return folder

"""Runs on text without translations so small that they take seconds."""

from pathlib import Path
from typing import Any

from regard.config import Settings, merge, parse_settings, preset

PERIOD = "wild fox\njumps,begnat."  # no sign comes twice

TABLES: dict[str, Any] = {
    "data": {"src_lang": "en", "tgt_lang": "en"},
    "text": {"max_len": 24, "byte_fallback": False},
    "model": {"n_decoder_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
    "train": {
        "batch_tokens": 240,
        "max_steps": 12,
        "warmup": 4,
        "valid_every": 4,
        "save_every": 4,
        "log_every": 2,
        "device": "cpu",
    },
    "decode": {"max_extra": 10},
}


def write_period(path: Path, times: int = 80) -> Path:
    """Write a text that anybody can foresee who has seen it once."""
    path.write_text(PERIOD * times, encoding="utf-8", newline="\n")
    return path


def text_settings(text: Path, *changes: dict[str, Any]) -> Settings:
    """Return the settings of a tiny run on a text."""
    tables = (preset("tiny", "decoder"), TABLES, {"data": {"train": [str(text)]}})
    return parse_settings(Settings, merge(*tables, *changes))

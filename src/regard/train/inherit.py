"""What a run takes over from a model that has learned before."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.checkpoint import CONFIG, fill, load_model, model_folder, read_settings, settings_table, unique_tensors
from regard.config import Settings
from regard.model import Seq2Seq
from regard.text.tokenizer import Tokenizer
from regard.zoo.find import find_model

# Of the learning rate that the model was made with: more makes it forget, less makes it slow (docs/log.md).
LR_SHARE = 0.2
# A user's own text is often small, and little of it shows whether the model gets better or only forgets.
FINE_TUNING = {"batch_tokens": 1024, "warmup": 50, "valid_every": 50, "save_every": 50}
OF_TOKENIZER = {"kind", "vocab_size", "joint", "byte_fallback", "character_coverage", "symbols"}
FREE_IN_MODEL = {"dropout"}  # the weights do not depend on it


def inherited(init: str) -> dict[str, dict[str, Any]]:
    """Gives the settings that a model hands down: languages, text, sizes and search, and a gentler learning rate."""
    made = _settings_of(init)
    table = settings_table(made)
    languages = {name: table["data"][name] for name in ("src_lang", "tgt_lang", "form", "columns")}
    share = LR_SHARE if made.train.init is None else 1.0  # a model that was itself tuned had it already
    learning = {**FINE_TUNING, "lr": made.train.lr * share, "init": init}
    if made.model.family == "decoder":
        learning |= {"label_smoothing": made.train.label_smoothing, "stop_on": "loss"}
    return {"data": languages, "train": learning, **{name: table[name] for name in ("text", "model", "decode")}}


def check_inherited(made: Settings, init: str | None) -> None:
    """Raises ValueError for settings with which the model's weights or its tokenizer would have no meaning."""
    if made.train.init != init:
        raise ValueError(f"train.init is said by --init, got {made.train.init!r} as a setting: use --init")
    if init is None:
        return
    own = _settings_of(init)
    for table in ("text", "model"):
        ours, theirs = asdict(getattr(made, table)), asdict(getattr(own, table))
        kept = OF_TOKENIZER if table == "text" else ours.keys() - FREE_IN_MODEL
        for name in sorted(kept):
            if ours[name] != theirs[name]:
                raise ValueError(
                    f"--init {init}: a model that learns on keeps its {table}.{name}, {theirs[name]!r}, got "
                    f"{ours[name]!r}: leave it out, or begin without --init"
                )
    if made.train.vectors != "random":
        raise ValueError(
            f"--init {init}: train.vectors fills the tables of a new model, got {made.train.vectors!r}: leave one out"
        )


def start_from_model(model: Seq2Seq, init: str) -> None:
    """Fills a model with the weights of another."""
    folder = find_model(init)
    fill(model, unique_tensors(load_model(folder).model), folder)


def inherited_tokenizer(made: Settings, folder: Path) -> Tokenizer | None:
    """Gives the tokenizer that a run must keep, if it began with a model; once it has a copy, it needs no other."""
    named = made.train.init or made.text.tokenizer
    if named is None:
        return None
    copy = folder / "data"
    return Tokenizer.load(copy if copy.is_dir() else model_folder(find_model(named)))


def _settings_of(init: str) -> Settings:
    return read_settings(model_folder(find_model(init)) / CONFIG)

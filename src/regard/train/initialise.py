"""Initial weights from another model, or from word vectors."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from regard.checkpoint import CONFIG, model_folder, read_settings, settings_table
from regard.checkpoint.weights import fill, load_model, unique_tensors
from regard.config import Settings
from regard.data.store import IdStore, Windows
from regard.data.tokenizer import Tokenizer
from regard.extras import needed_by
from regard.model import Seq2Seq
from regard.zoo import find_model

# Of the learning rate that the model was trained with: more makes it forget, less makes it slow (docs/log.md).
LR_SHARE = 0.2
# A user's text is often small, so the model is validated often.
FINE_TUNING = {"batch_tokens": 1024, "warmup": 50, "valid_every": 50, "save_every": 50}
TOKENIZER_SETTINGS = {"kind", "vocab_size", "joint", "byte_fallback", "character_coverage", "symbols"}
FREE_MODEL_SETTINGS = {"dropout"}  # the weights do not depend on it


def inherited_settings(init: str) -> dict[str, dict[str, Any]]:
    """Return the settings for fine-tuning a model: its languages, text, sizes and search, and a lower learning rate."""
    settings = _read_settings(init)
    table = settings_table(settings)
    languages = {name: table["data"][name] for name in ("src_lang", "tgt_lang", "form", "columns")}
    share = LR_SHARE if settings.train.init is None else 1.0  # a fine-tuned model had it already
    learning = {**FINE_TUNING, "lr": settings.train.lr * share, "init": init}
    if settings.model.family == "decoder":
        learning |= {"label_smoothing": settings.train.label_smoothing, "stop_on": "loss"}
    return {"data": languages, "train": learning, **{name: table[name] for name in ("text", "model", "decode")}}


def check_inherited(settings: Settings, init: str | None) -> None:
    """Raise ValueError for settings that the model's weights or its tokenizer do not fit."""
    if settings.train.init != init:
        raise ValueError(f"train.init is set by --init, got {settings.train.init!r} as a setting: use --init")
    if init is None:
        return
    own = _read_settings(init)
    for table in ("text", "model"):
        ours, theirs = asdict(getattr(settings, table)), asdict(getattr(own, table))
        fixed = TOKENIZER_SETTINGS if table == "text" else ours.keys() - FREE_MODEL_SETTINGS
        for name in sorted(fixed):
            if ours[name] != theirs[name]:
                raise ValueError(
                    f"--init {init}: fine-tuning keeps the model's {table}.{name}, {theirs[name]!r}, got "
                    f"{ours[name]!r}: leave it out, or start without --init"
                )
    if settings.train.vectors != "random":
        raise ValueError(
            f"--init {init}: train.vectors initialises a new model, got {settings.train.vectors!r}: leave one out"
        )


def start_from_model(model: Seq2Seq, init: str) -> None:
    """Load the weights of another model."""
    folder = find_model(init)
    fill(model, unique_tensors(load_model(folder).model), folder)


def inherited_tokenizer(settings: Settings, folder: Path) -> Tokenizer | None:
    """Return the tokenizer of the initial model, or the run's own copy of it; None if the run trains one."""
    named = settings.train.init or settings.text.tokenizer
    if named is None:
        return None
    copy = folder / "data"
    return Tokenizer.load(copy if copy.is_dir() else model_folder(find_model(named)))


def _read_settings(init: str) -> Settings:
    return read_settings(model_folder(find_model(init)) / CONFIG)


SKIP_GRAM = {"skip_gram": 1, "cbow": 0}


class StoreSentences:
    """The sentences of one side of a store, or of both, as a repeatable iterable for gensim."""

    def __init__(self, store: IdStore, sides: tuple[Literal["src", "tgt"], ...]):
        self.store = store
        self.sides = sides

    def __iter__(self) -> Iterator[list[str]]:
        for i in range(len(self.store)):
            for side in self.sides:
                ids = self.store.src(i) if side == "src" else self.store.tgt(i)
                yield [str(piece) for piece in ids]


def start_from_vectors(model: Seq2Seq, store: IdStore | Windows, method: str, seed: int) -> None:
    """Initialise the embeddings with skip-gram or CBOW vectors (Mikolov et al. 2013, arXiv:1301.3781)."""
    assert isinstance(store, IdStore), "a decoder's embeddings are initialised at random"
    src, tgt = model.get_submodule("src.table"), model.get_submodule("tgt.table")
    if src is tgt:
        fill_table(src.weight, StoreSentences(store, ("src", "tgt")), method, seed)  # pyright: ignore[reportArgumentType]
    else:
        fill_table(src.weight, StoreSentences(store, ("src",)), method, seed)  # pyright: ignore[reportArgumentType]
        fill_table(tgt.weight, StoreSentences(store, ("tgt",)), method, seed)  # pyright: ignore[reportArgumentType]


def fill_table(table: Tensor, sentences: StoreSentences, method: str, seed: int) -> None:
    """Train vectors of the table's width and copy them, scaled to its initial spread; rows without a vector stay."""
    with needed_by(f"train.vectors {method!r}"):
        from gensim.models import Word2Vec
    width = table.shape[1]
    # One worker: with several, the order of updates and so the result would differ from run to run.
    word2vec = Word2Vec(sentences, vector_size=width, sg=SKIP_GRAM[method], min_count=1, workers=1, seed=seed, epochs=5)
    vectors = torch.tensor(word2vec.wv.vectors)
    vectors -= vectors.mean(dim=0)  # the common component carries no information, and can be most of their norm
    with torch.no_grad():
        rows = torch.tensor([int(str(word)) for word in word2vec.wv.index_to_key], device=table.device)
        table[rows] = (vectors * (width**-0.5 / vectors.std())).to(table)

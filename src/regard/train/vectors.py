"""Word vectors learned on the training text, from which a model's tables may start."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from regard.config import choose
from regard.model import Seq2Seq
from regard.text.store import IdStore
from regard.text.windows import Windows

SKIP_GRAM = {"skip_gram": 1, "cbow": 0}


class Sentences:
    """The sentences of one side of a store, or of both, as gensim reads them: again and again."""

    def __init__(self, store: IdStore, sides: tuple[Literal["src", "tgt"], ...]):
        self.store = store
        self.sides = sides

    def __iter__(self) -> Iterator[list[str]]:
        for i in range(len(self.store)):
            for side in self.sides:
                ids = self.store.src(i) if side == "src" else self.store.tgt(i)
                yield [str(piece) for piece in ids]


def start_from_vectors(model: Seq2Seq, store: IdStore | Windows, method: str, seed: int) -> None:
    """Fills the tables of a model with skip-gram or CBOW vectors (Mikolov et al. 2013, arXiv:1301.3781; S4.5)."""
    choose(SKIP_GRAM, method, "vectors")
    assert isinstance(store, IdStore), "a decoder's tables start at random"
    src, tgt = model.get_submodule("src.table"), model.get_submodule("tgt.table")
    if src is tgt:
        fill_table(src.weight, Sentences(store, ("src", "tgt")), method, seed)  # pyright: ignore[reportArgumentType]
    else:
        fill_table(src.weight, Sentences(store, ("src",)), method, seed)  # pyright: ignore[reportArgumentType]
        fill_table(tgt.weight, Sentences(store, ("tgt",)), method, seed)  # pyright: ignore[reportArgumentType]


def fill_table(table: Tensor, sentences: Sentences, method: str, seed: int) -> None:
    """Learns vectors of the table's width and puts them in, scaled to the spread that the table had; rare rows stay."""
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise ValueError(f"train.vectors {method!r} needs gensim: pip install 'regard[vectors]'") from error
    width = table.shape[1]
    # One worker: with several the order of updates, and so the result, would differ from run to run.
    learned = Word2Vec(sentences, vector_size=width, sg=SKIP_GRAM[method], min_count=1, workers=1, seed=seed, epochs=5)
    vectors = torch.tensor(learned.wv.vectors)
    vectors -= vectors.mean(dim=0)  # what all have in common tells nothing, and can be most of their length
    with torch.no_grad():
        rows = torch.tensor([int(str(word)) for word in learned.wv.index_to_key], device=table.device)
        table[rows] = (vectors * (width**-0.5 / vectors.std())).to(table)

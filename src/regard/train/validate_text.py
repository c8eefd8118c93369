"""How good a decoder is: how well it foresees text it does not learn from, and how it goes on with it."""

from dataclasses import replace

from regard.checkpoint import Checkpoint
from regard.decode.load import ready
from regard.decode.perplexity import foresee_documents, foresee_running
from regard.decode.writer import Writer
from regard.text.store import IdStore
from regard.text.windows import Windows

GIVEN, WRITTEN = 24, 120  # pieces of the sample that are given, and that are written after them, at most


def text_loss(checkpoint: Checkpoint, store: IdStore | Windows) -> float:
    """Gives the mean −log p of the pieces of a store: of one text that runs on, or of documents with their ends."""
    model, budget = checkpoint.model, checkpoint.settings.train.batch_tokens
    if isinstance(store, Windows):
        return foresee_running(model, store.ids, store.width, budget).loss
    return foresee_documents(model, [store.tgt(i) for i in range(len(store))], budget).loss


def text_sample(checkpoint: Checkpoint, store: IdStore | Windows) -> tuple[str, str, str]:
    """Gives the beginning of a store, how the model goes on with it, and how the text does."""
    writer = ready(checkpoint)
    assert isinstance(writer, Writer), "text without translations is a decoder's"
    text = [int(i) for i in store.tgt(0)]
    given = text[: min(GIVEN, len(text) // 2)]
    decode = checkpoint.settings.decode
    settings = replace(decode, method="sample", n_best=1, max_extra=min(WRITTEN, decode.max_extra))
    written = [token for token, _ in writer.tokens(given, settings)]
    rest = text[len(given) : len(given) + WRITTEN]
    return _shown(checkpoint, given), _shown(checkpoint, written), _shown(checkpoint, rest)


def _shown(checkpoint: Checkpoint, ids: list[int]) -> str:
    return checkpoint.tokenizer.decode(ids).replace("\n", "⏎")

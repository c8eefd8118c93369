"""Learning words from what stands around them, on text without questions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import make_source
from regard.checkpoint.reading import QuestionReader
from regard.model.masked_words import MaskedWords
from regard.model.span_reader import Reading
from regard.text.passages import READ
from regard.text.tokenizer import Tokenizer
from regard.train.examples import ExampleSettings, Lesson, learn_examples

HIDDEN = 0.15  # share of the pieces that are to be told
BLANKED, SWAPPED = 0.8, 0.1  # of these: shown as unknown, or as another piece; the rest is shown as it is
FIRST_PIECE = 4  # below stand padding, unknown, beginning and end
JUDGED = 0.05  # share of the chunks on which the model is judged


def learn_words(reader: QuestionReader, texts: Sequence[str], settings: ExampleSettings) -> Iterator[Lesson]:
    """Has a reader's encoder learn from texts; a lesson's score is the mean log-probability of hidden pieces.

    With byte fallback no piece is ever unknown, so that piece is free to stand for a hidden one.
    """
    chunks = cut_chunks(reader.tokenizer.encode_batch(texts, "src"), reader.settings.windows.size - 2)
    n_judged = max(1, round(len(chunks) * JUDGED))
    if len(chunks) <= n_judged:
        raise ValueError(f"to learn words there must be more than {n_judged} chunks of text, got {len(chunks)}")
    judged, taught = chunks[:n_judged], chunks[n_judged:]
    device = next(reader.model.parameters()).device
    model = MaskedWords(reader.model).to(device)

    def loss(numbers: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        return masked_loss(model, [taught[n] for n in numbers.tolist()], None)

    def judge() -> float:
        chance, losses = torch.Generator().manual_seed(settings.seed), []
        for first in range(0, len(judged), settings.batch):
            losses.append(masked_loss(model, judged[first : first + settings.batch], chance))
        return -float(torch.stack(losses).mean())

    yield from learn_examples(model, len(taught), loss, judge, settings)


def cut_chunks(texts: Iterable[Sequence[int]], size: int) -> list[list[int]]:
    """Lays texts end to end, EOS between them, until a chunk is full; what a text has too much begins the next."""
    chunks: list[list[int]] = [[]]
    for ids in texts:
        rest = [*ids, Tokenizer.eos_id] if ids else []
        while rest:
            room = size - len(chunks[-1])
            chunks[-1] += rest[:room]
            rest = rest[room:]
            if len(chunks[-1]) == size:
                chunks.append([])
    return [chunk for chunk in chunks if len(chunk) > 1]


def masked_loss(model: MaskedWords, chunks: Sequence[list[int]], chance: torch.Generator | None) -> Float[Tensor, ""]:
    """Gives the mean −log p of the pieces that are hidden in some chunks."""
    src = make_source([[Tokenizer.bos_id, *chunk] for chunk in chunks])
    shown, hidden = hide(src.ids, model.reader.words.table.num_embeddings, chance)
    marks = (src.ids >= FIRST_PIECE) * READ
    device = next(model.parameters()).device
    reading = Reading(replace(src, ids=shown), marks).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits = model(reading, hidden.to(device))
    return F.cross_entropy(logits.float(), src.ids[hidden].to(device))


def hide(
    ids: Int[Tensor, "B S"], vocab_size: int, chance: torch.Generator | None
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Gives ids of which some are hidden, and tells which; at least one is (arXiv:1810.04805, 3.1)."""
    drawn = torch.where(ids >= FIRST_PIECE, torch.rand(ids.shape, generator=chance), torch.ones(()))
    hidden = drawn <= torch.maximum(torch.tensor(HIDDEN), drawn.min())
    how = torch.rand(ids.shape, generator=chance)
    others = torch.randint(FIRST_PIECE, vocab_size, ids.shape, generator=chance)
    shown = torch.where(hidden & (how < BLANKED), Tokenizer.unk_id, ids)
    return torch.where(hidden & (how >= BLANKED) & (how < BLANKED + SWAPPED), others, shown), hidden

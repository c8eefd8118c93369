"""What an imported model must have in common with the one it was made of, measured; nothing is asserted here."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import regard
from regard.batch import make_batch
from regard.checkpoint.weights import load_model
from regard.foreign.incoming import Incoming, read_incoming, write_incoming
from regard.search.hypothesis import Hypothesis
from tests.foreign.theirs import Theirs

RULES = {True: "full", False: "heuristic", "never": "never"}


@dataclass(frozen=True, eq=False)
class Imported:
    """Their model, and ours that was made of its files alone."""

    theirs: Theirs
    incoming: Incoming
    folder: Path

    def their_ids(self, ids: list[int], side: str = "tgt") -> list[int]:
        rows = getattr(self.incoming.vocabulary, side).rows
        return [rows[i] for i in ids]

    def our_ids(self, text: str) -> list[int]:
        return self.incoming.tokenizer.encode(text, "src")


def take_over(theirs: Theirs, out: Path, **languages: str) -> Imported:
    incoming = read_incoming(theirs.folder, **languages)
    write_incoming(incoming, out)
    return Imported(theirs, incoming, out)


def written_ids(imported: Imported, n: int, first: int = 9) -> list[int]:
    """Picks ids that both may write."""
    return list(range(first, first + n))


def logits(imported: Imported, texts: list[str], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes both models' logits of every id that both have, of real tokens."""
    made, model = load_model(imported.folder), imported.theirs.model
    tokenizer, numbering = imported.theirs.tokenizer, imported.incoming.vocabulary.tgt
    targets = [written_ids(imported, 3 + 2 * n) for n in range(len(texts))]
    batch = make_batch([imported.our_ids(text) for text in texts], targets)
    read = tokenizer(texts, padding=True, return_tensors="pt")
    inputs = torch.tensor([[numbering.rows[i] for i in row] for row in batch.tgt.inputs.tolist()])
    with torch.no_grad():
        theirs = model.to(dtype)(**read, decoder_input_ids=inputs).logits
        ours = made.model.to(dtype)(batch)
    model.float()
    both = [i for i in range(ours.shape[-1]) if i not in numbering.unwritten]
    real = batch.tgt.token_mask
    return theirs[..., [numbering.rows[i] for i in both]][real], ours[..., both][real]


@dataclass(frozen=True)
class Searches:
    """What two searches wrote, their ids without the end, and where they differ."""

    theirs: list[list[int]]
    ours: list[list[int]]
    found: list[Hypothesis]

    @property
    def differing(self) -> list[int]:
        return [i for i, both in enumerate(zip(self.theirs, self.ours, strict=True)) if both[0] != both[1]]


def search(imported: Imported, texts: list[str], translator: Any = None, **options: Any) -> Searches:
    """Searches with both: as the folder says, but for options in their words."""
    translator = translator or regard.load(imported.folder)
    theirs = imported.theirs.generate(texts, **options)
    ours = {"num_beams": "beam", "length_penalty": "length_penalty"}
    settings = replace(translator.settings, **{ours[k]: v for k, v in options.items() if k in ours})
    if "early_stopping" in options:
        settings = replace(settings, early_stopping=RULES[options["early_stopping"]])
    sources = [imported.our_ids(text) for text in texts]
    found = [best for _, (best, *_) in sorted(translator.engine.search(sources, settings))]
    return Searches(theirs, [imported.their_ids(each.ids) for each in found], found)


def their_score(imported: Imported, text: str, ids: list[int], penalty: float) -> float:
    """Scores what was written by their model in float64, as their beam search does."""
    model = imported.theirs.model.double()
    start, eos = model.config.decoder_start_token_id, model.config.eos_token_id
    read = imported.theirs.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        made = model(**read, decoder_input_ids=torch.tensor([[start, *ids]])).logits[0].log_softmax(-1)
    model.float()
    said = torch.tensor([*ids, eos])
    return float(made[torch.arange(len(said)), said].sum() / len(said) ** penalty)


def their_attentions(imported: Imported, text: str, written: list[int]) -> dict[tuple[str, int], torch.Tensor]:
    """Reads what was written with their model, and gives the weights of each kind, layer by layer."""
    read = imported.theirs.tokenizer(text, return_tensors="pt")
    inputs = torch.tensor([[imported.incoming.vocabulary.tgt.rows[2], *imported.their_ids(written[:-1])]])
    imported.theirs.model.set_attn_implementation("eager")
    with torch.no_grad():
        seen = imported.theirs.model(**read, decoder_input_ids=inputs, output_attentions=True)
    kinds = (seen.encoder_attentions, seen.decoder_attentions, seen.cross_attentions)
    return {
        (kind, n): layer[0]
        for kind, layers in zip(("encoder", "decoder", "cross"), kinds, strict=True)
        for n, layer in enumerate(layers)
    }

"""Prompts -> texts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, NoReturn, cast, overload

import torch
from jaxtyping import Float
from torch import Tensor

import regard
from regard.batch import make_source
from regard.checkpoint import Checkpoint
from regard.config import DecodeSettings, choose
from regard.data.tokenizer import Tokenizer
from regard.model import DecoderOnly, Seq2Seq
from regard.model.decoder_only import DecoderOnlyState
from regard.model.seq2seq import log_probs
from regard.padding import BOS, EOS
from regard.pipeline.translator import Translation, Translator, make_translation
from regard.search.hypothesis import Hypothesis
from regard.search.sampling import check_chance, drawn, draws
from regard.search.scoring import Foreseen, foresee_documents, foresee_running

NEAR = 8  # ids before a piece that tell how it is written: whether a space stands there, whether a character is whole


def generate(
    model: DecoderOnly, prompt: Sequence[int], settings: DecodeSettings, room: int | None, sample: int = 0
) -> Iterator[tuple[int, float]]:
    """Writes after a prompt until EOS, or `max_extra` tokens; gives each as it comes, with its log-probability.

    Of the `n_best` samples of a seed this is the one with this number: what `sample_search` finds. `room` is the number
    of tokens that the model looks back at. When there are as many, the newest half is read again from its beginning on,
    and the rest is forgotten: half a window of lookback at the least, for two readings of each token.
    """
    check(settings, room, sample)
    n = len(prompt) + settings.max_extra
    device = next(model.parameters()).device
    luck = draws(make_source([[]]).to(device), [n], settings)[0, sample]
    ids, state = [BOS, *prompt], None
    for place in range(len(prompt), n):
        logits, state = _read(model, ids, state, room)
        token, gain = _chosen(logits, luck[place : place + 1], settings)
        yield token, gain
        if token == EOS:
            return
        ids.append(token)


def check(settings: DecodeSettings, room: int | None, sample: int) -> None:
    """Raises ValueError for what cannot be written."""
    choose({"greedy": 0, "sample": 0}, settings.method, "method of writing token by token")
    if settings.max_extra < 0:
        raise ValueError(f"max_extra must be 0 or more tokens after the prompt, got {settings.max_extra}")
    if room is not None and room < 2:
        raise ValueError(f"a model must look back at 2 tokens or more, got {room}")
    if not 0 <= sample < settings.n_best:
        raise ValueError(f"sample must lie in 0 … {settings.n_best - 1}, one of n_best, got {sample}")
    check_chance(settings)


@torch.inference_mode()
def _read(
    model: DecoderOnly, ids: list[int], state: DecoderOnlyState | None, room: int | None
) -> tuple[Float[Tensor, "1 V"], DecoderOnlyState]:
    """Reads what the model has not read yet, or what it shall go on with where there is no room for more."""
    device = next(model.parameters()).device
    wanted = len(ids) if state is None else state.length + 1
    if room is not None and wanted > room:
        ids, state = [BOS, *ids[1:][-(room // 2) :]], None
    if state is None:
        return model.advance(torch.tensor([ids], device=device), model.start(make_source([[]]).to(device), 1))
    return model.advance(torch.tensor([ids[-1:]], device=device), state)


@torch.inference_mode()
def _chosen(logits: Float[Tensor, "1 V"], luck: Float[Tensor, " 1"], settings: DecodeSettings) -> tuple[int, float]:
    said = log_probs(logits, None)
    token = said.argmax(-1) if settings.method == "greedy" else drawn(said, luck, settings)
    return int(token), float(said[0, token])


def as_text(tokenizer: Tokenizer, before: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
    """Gives what each token adds to the text; bytes of a character wait for its last."""
    near, waiting = list(before[-NEAR:]), []
    for token in tokens:
        waiting.append(token)
        old, new = (tokenizer.decode(ids) for ids in (near, near + waiting))
        if not new.endswith("\N{REPLACEMENT CHARACTER}"):
            yield new[len(old) :]
            near, waiting = (near + waiting)[-NEAR:], []
    if waiting:
        yield tokenizer.decode(near + waiting)[len(tokenizer.decode(near)) :]


# Schemes that were made to look back farther than a model has learned to (docs/generation.md has the measurement).
REACHING = {"alibi"}


class Writer(Translator):
    """A model with its tokenizer, ready to write; `room` is the number of tokens it looks back at, None for all.

    It is a translator whose source says nothing, and a subclass for that reason alone: searches, traces and the page
    know translators. What asks it to translate is told what to do instead.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        settings: DecodeSettings,
        language: str,
        max_len: int,
        form: str = "text",
        room: int | None = None,
    ):
        super().__init__(model, tokenizer, settings, language, language, max_len)
        self.form = form
        self.room = room

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Writer":
        """Makes a writer of a model as it was saved; past what it has learned it looks back at as much and no more."""
        made = checkpoint.settings
        reaches = made.model.position.name in REACHING
        limits = [limit for limit in (None if reaches else made.text.max_len, checkpoint.model.limit) if limit]
        about = (made.decode, made.data.tgt_lang, made.text.max_len, made.data.form)
        return cls(checkpoint.model, checkpoint.tokenizer, *about, min(limits, default=None))

    def parts(self, texts: Sequence[str], first: int) -> NoReturn:
        raise ValueError("this model writes text and translates none: use regard generate, or generate() in Python")

    def generate(self, prompt: str = "", settings: DecodeSettings | None = None, sample: int = 0) -> Iterator[str]:
        """Goes on with a text, piece by piece as it is written, for `max_extra` pieces or until the model ends it.

        A beam is searched to its end before anything is known to be part of it, and comes in one piece.
        """
        settings = settings or self.settings
        if settings.method == "beam":
            yield self.write(prompt, settings).text[len(prompt) :]
            return
        before = self.ids(prompt)
        yield from as_text(self.tokenizer, before, (token for token, _ in self.tokens(before, settings, sample)))

    def tokens(self, prompt: Sequence[int], settings: DecodeSettings, sample: int = 0) -> Iterator[tuple[int, float]]:
        """Goes on with ids, and gives each token with its log-probability."""
        return generate(cast(DecoderOnly, self.model), prompt, settings, self.room, sample)

    @overload
    def write(self, prompt: str = "", settings: DecodeSettings | None = None) -> Translation: ...

    @overload
    def write(
        self, prompt: str = "", settings: DecodeSettings | None = None, *, trace: Literal[True]
    ) -> "regard.Traced": ...

    def write(
        self, prompt: str = "", settings: DecodeSettings | None = None, *, trace: bool = False
    ) -> "Translation | regard.Traced":
        """Writes whole texts by any search, the prompt included; no more than the model looks back at.

        With `trace` the best comes with all that can be seen in the run that made it.
        """
        settings = settings or self.settings
        if trace:
            return regard.traced_text(self, prompt, settings)  # its room comes after this one: by the front door
        found = self.search(self.ids(prompt), settings)
        return make_translation([[]], [found], self.tokenizer, "", settings.length_penalty)

    def search(self, prompt: list[int], settings: DecodeSettings) -> list[Hypothesis]:
        """Finds hypotheses that begin with a prompt, best first."""
        return self.find([[[]]], self.searching(prompt, settings), prompt, lambda n_lines: None)[0]

    def searching(self, prompt: Sequence[int], settings: DecodeSettings) -> DecodeSettings:
        """Gives the settings by which a search writes `max_extra` tokens after a prompt, as far as there is room."""
        wanted = len(prompt) + settings.max_extra
        if self.room is not None and len(prompt) >= self.room:
            raise ValueError(
                f"a prompt must be shorter than the {self.room} pieces that the model looks back at, "
                f"got {len(prompt)}: shorten it, or go on with it piece by piece"
            )
        return replace(settings, max_ratio=0.0, max_extra=wanted if self.room is None else min(wanted, self.room))

    def foresee(self, *texts: str, batch_tokens: int = 8192) -> Foreseen:
        """Gives how well the model foresees texts: each a document by itself, or all one after the other.

        Which of the two is how the model has learned; see `perplexity.py` for what is counted.
        """
        ids = self.tokenizer.encode_batch(texts, "tgt")
        if self.form == "documents":
            return foresee_documents(self.model, ids, batch_tokens)
        return foresee_running(self.model, [token for some in ids for token in some], self.max_len, batch_tokens)

    def ids(self, prompt: str) -> list[int]:
        """Gives the ids of a prompt, which must be known."""
        ids = self.tokenizer.encode(prompt, "tgt")
        if self.tokenizer.unk_id in ids:
            unknown = prompt[self.tokenizer.spans(prompt, "tgt")[ids.index(self.tokenizer.unk_id)][0]]
            raise ValueError(f"a prompt must be of characters that the model knows, got {unknown!r}: leave it out")
        return ids

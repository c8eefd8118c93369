"""A decoder-only model ready to write: prompts become texts, and texts are foreseen."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NoReturn, cast, overload

import regard
from regard.checkpoint import Checkpoint
from regard.config import DecodeSettings
from regard.decode.generate import as_text, generate
from regard.decode.hypothesis import Hypothesis
from regard.decode.perplexity import Foreseen, foresee_documents, foresee_running
from regard.decode.translation import Translation, make_translation
from regard.decode.translator import Translator
from regard.model import DecoderOnly, Seq2Seq
from regard.text.tokenizer import Tokenizer

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

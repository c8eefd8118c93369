"""Texts -> translations."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import fsum
from typing import TYPE_CHECKING

from regard.config import DecodeSettings
from regard.data.normalise import language_code
from regard.data.tokenizer import Tokenizer
from regard.engine import Engine
from regard.pipeline.shortlist import Shortlist
from regard.search.hypothesis import Hypothesis, normalised

if TYPE_CHECKING:
    from regard.checkpoint.weights import Checkpoint
    from regard.model import Seq2Seq

# A Latin sign counts only before white space, so that 3.14 stays whole; closing quotes and brackets go with the end.
SENTENCE_END = re.compile(r"""[。！？；…]+["'”’」』）》]*\s*|[.!?;]+["'”’)\]]*\s+|\n\s*""")
CLAUSE_END = re.compile(r"[，、：]+\s*|[,:]\s+")


def sentences(text: str, count: Callable[[str], int], max_len: int) -> list[str]:
    """Cut a text into sentences; one that counts more than `max_len` is cut at its commas, into as few as possible.

    Joined again the parts are the text. Where there is no place to cut, ValueError says how long the stretch is.
    """
    return [part for sentence in cut(text, SENTENCE_END) for part in _clauses(sentence, count, max_len)]


def cut(text: str, end: re.Pattern[str]) -> list[str]:
    """Cut a text after each match."""
    places = sorted({0, len(text), *(match.end() for match in end.finditer(text))})
    return [text[start:stop] for start, stop in pairwise(places)]


def _clauses(sentence: str, count: Callable[[str], int], max_len: int) -> list[str]:
    if count(sentence) <= max_len:
        return [sentence]
    packed = [""]
    for clause in cut(sentence, CLAUSE_END):
        if count(packed[-1] + clause) <= max_len:
            packed[-1] += clause
        else:
            packed.append(clause)
    if (longest := max(count(part) for part in packed)) > max_len:
        raise ValueError(
            f"{longest} pieces without a sentence's end or a comma are more than the {max_len} that the model reads: "
            f"shorten or cut the text at {sentence[:30]!r}"
        )
    return [part for part in packed if part]


@dataclass(frozen=True)
class Alternative:
    """One of the translations that were found for a text."""

    text: str
    score: float


@dataclass(frozen=True)
class Translation:
    """The best translation of a text, and all that were found, best first.

    `tokens` are the pieces that it was written in, `source_tokens` those that the text was read in.
    """

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alternatives: list[Alternative]


def make_translation(
    sources: Sequence[Sequence[int]],
    found: Sequence[Sequence[Hypothesis]],
    tokenizer: Tokenizer,
    separator: str,
    length_penalty: float,
) -> Translation:
    """Join what was found for the parts of a text: best with best, second with second; no parts are an empty text.

    A part of which fewer were found takes part with its last. The score is that of the parts as one hypothesis.
    """
    source_tokens = tokenizer.pieces([token for ids in sources for token in ids], "src")
    if not found:
        return Translation("", 0.0, [], source_tokens, [])
    ranks = range(max(len(hypotheses) for hypotheses in found))
    joint = [[hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found] for rank in ranks]
    texts = [separator.join(text for part in parts if (text := tokenizer.decode(part.ids))) for parts in joint]
    scores = [_score(parts, length_penalty) for parts in joint]
    tokens = tokenizer.pieces([token for part in joint[0] for token in part.ids], "tgt")
    alternatives = [Alternative(text, score) for text, score in zip(texts, scores, strict=True)]
    return Translation(texts[0], scores[0], tokens, source_tokens, alternatives)


def _score(parts: Sequence[Hypothesis], length_penalty: float) -> float:
    length = sum(len(part.token_log_probs) for part in parts)
    return normalised(fsum(part.log_prob for part in parts), length, length_penalty)


WINDOW = 2000  # lines that are read before they are sorted: enough for even batches, little for the memory
WRITTEN_WITHOUT_SPACES = {"zh", "zho", "cmn", "yue", "wuu", "lzh", "ja", "jpn"}

Tick = Callable[[int], None]  # told how many lines more are done


@dataclass(eq=False, repr=False)
class Translator:
    """An engine with its tokenizer, ready to translate; `max_len` is the number of tokens that it was made to read."""

    engine: Engine
    tokenizer: Tokenizer
    settings: DecodeSettings
    src_lang: str
    tgt_lang: str
    max_len: int
    shortlist: Shortlist | None = None

    @classmethod
    def from_checkpoint(cls, checkpoint: "Checkpoint", engine: Engine) -> "Translator":
        """Return a translator of a model as it was saved, on an engine of it."""
        made = checkpoint.settings
        languages = made.data.src_lang, made.data.tgt_lang
        return cls(engine, checkpoint.tokenizer, made.decode, *languages, made.text.max_len)

    @property
    def model(self) -> "Seq2Seq":
        """The plain PyTorch modules that this translator decodes as."""
        return self.engine.model

    def translate(
        self, texts: Sequence[str] | str, settings: DecodeSettings | None = None, prefix: str = ""
    ) -> list[Translation]:
        """Translate one text or several; each translation begins with the prefix."""
        return list(self.stream([texts] if isinstance(texts, str) else texts, settings, prefix))

    def stream(
        self,
        lines: Iterable[str],
        settings: DecodeSettings | None = None,
        prefix: str = "",
        tick: Tick | None = None,
    ) -> Iterator[Translation]:
        """Translate lines as they come, a window of them at a time, in memory that does not grow with their number.

        Empty lines stay empty. A line of more than `max_len` tokens is translated sentence by sentence; one that cannot
        be cut raises ValueError with its number.
        """
        settings = settings or self.settings
        forced = self.tokenizer.encode(prefix, "tgt") if prefix else []
        lines, first = iter(lines), 1
        while window := list(islice(lines, WINDOW)):
            texts = self.segment(window, first)
            yield from self.merge(texts, self.search(texts, settings, forced, tick or _ignore), settings)
            first += len(window)

    def segment(self, texts: Sequence[str], first: int = 1) -> list[list[list[int]]]:
        """Return the ids of each text: one part, several where it is too long, none where it is empty."""
        encoded = self.tokenizer.encode_batch(texts, "src")
        return [
            [ids] * bool(ids) if len(ids) <= self.max_len else self._cut(text, line)
            for line, (text, ids) in enumerate(zip(texts, encoded, strict=True), start=first)
        ]

    def _cut(self, text: str, line: int) -> list[list[int]]:
        def count(part: str) -> int:
            return len(self.tokenizer.encode(part, "src"))

        try:
            parts = sentences(text, count, self.max_len)
        except ValueError as error:
            raise ValueError(f"line {line}: {error}") from error
        return [ids for ids in self.tokenizer.encode_batch(parts, "src") if ids]

    def search(
        self, texts: list[list[list[int]]], settings: DecodeSettings, forced: list[int], tick: Tick
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each part of each text; the first part of a text begins with the forced ids."""
        parts = [part for text in texts for part in text]
        begins = [index == 0 for text in texts for index in range(len(text))]
        found: list[list[Hypothesis]] = [[] for _ in parts]
        tick(sum(not text for text in texts))
        prefixes = [forced if begin else [] for begin in begins] if forced else None
        vocabulary = None if self.shortlist is None else self.shortlist.words
        for i, hypotheses in self.engine.search(parts, settings, prefixes, vocabulary):
            found[i] = hypotheses
            tick(begins[i])
        return found

    def merge(
        self, texts: list[list[list[int]]], found: list[list[Hypothesis]], settings: DecodeSettings
    ) -> Iterator[Translation]:
        """Yield one translation of each text from the hypotheses of its parts."""
        separator = "" if language_code(self.tgt_lang) in WRITTEN_WITHOUT_SPACES else " "
        rest = iter(found)
        for text in texts:
            mine = list(islice(rest, len(text)))
            yield make_translation(text, mine, self.tokenizer, separator, settings.length_penalty)


def _ignore(n_lines: int) -> None:
    """Show no progress."""

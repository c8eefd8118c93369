"""Texts -> translations."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from math import fsum
from typing import Literal, overload

import regard
from regard.batch import make_source
from regard.checkpoint import Checkpoint
from regard.config import DecodeSettings, choose
from regard.data.tokenizer import Tokenizer
from regard.engine.cpu import NativeTransformer
from regard.engine.cpu import search as native_search
from regard.engine.cuda import SlottedTransformer
from regard.engine.slots import search_all
from regard.model import Seq2Seq
from regard.padding import length_sorted
from regard.pipeline.shortlist import Shortlist
from regard.search import SEARCH
from regard.search.hypothesis import Hypothesis, normalised

# A Latin sign counts only before white space, so that 3.14 stays whole; closing quotes and brackets go with the end.
SENTENCE_END = re.compile(r"""[。！？；…]+["'”’」』）》]*\s*|[.!?;]+["'”’)\]]*\s+|\n\s*""")
CLAUSE_END = re.compile(r"[，、：]+\s*|[,:]\s+")


def sentences(text: str, count: Callable[[str], int], max_len: int) -> list[str]:
    """Cuts a text into sentences; one that counts more than `max_len` is cut at its commas, into as few as possible.

    Joined again the parts are the text. Where there is no place to cut, ValueError says how long the stretch is.
    """
    return [part for sentence in cut(text, SENTENCE_END) for part in _clauses(sentence, count, max_len)]


def cut(text: str, end: re.Pattern[str]) -> list[str]:
    """Cuts a text after each match."""
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
    """The best translation of a text, the pieces it was written in and read in, and all that were found, best first."""

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
    """Joins what was found for the parts of a text: best with best, second with second; no parts are an empty text.

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
ALONE = {"greedy", "beam"}  # searches that a GPU, or compiled code, does without asking Python
WRITTEN_WITHOUT_SPACES = {"zh", "zho", "cmn", "yue", "wuu", "lzh", "ja", "jpn"}

Tick = Callable[[int], None]  # told how many lines more are done


class Translator:
    """A model with its tokenizer, ready to translate; `max_len` is the number of pieces that it was made to read."""

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        settings: DecodeSettings,
        src_lang: str,
        tgt_lang: str,
        max_len: int,
        shortlist: Shortlist | None = None,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        self.src_lang = src_lang
        self.tgt_lang = tgt_lang
        self.max_len = max_len
        self.shortlist = shortlist

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Translator":
        """Makes a translator of a model as it was saved."""
        made = checkpoint.settings
        languages = made.data.src_lang, made.data.tgt_lang
        return cls(checkpoint.model, checkpoint.tokenizer, made.decode, *languages, made.text.max_len)

    @overload
    def translate(
        self, texts: Sequence[str] | str, settings: DecodeSettings | None = None, prefix: str = ""
    ) -> list[Translation]: ...

    @overload
    def translate(
        self,
        texts: Sequence[str] | str,
        settings: DecodeSettings | None = None,
        prefix: str = "",
        *,
        trace: Literal[True],
    ) -> "list[regard.Traced]": ...

    def translate(
        self,
        texts: Sequence[str] | str,
        settings: DecodeSettings | None = None,
        prefix: str = "",
        *,
        trace: bool = False,
    ) -> "list[Translation] | list[regard.Traced]":
        """Translates one text or several; each translation begins with the prefix.

        With `trace` each comes with all that can be seen in the run that made it.
        """
        texts = [texts] if isinstance(texts, str) else texts
        if trace:
            return regard.traced(self, texts, settings, prefix)  # its room comes after this one: by the front door
        return list(self.stream(texts, settings, prefix))

    def stream(
        self,
        lines: Iterable[str],
        settings: DecodeSettings | None = None,
        prefix: str = "",
        tick: Tick | None = None,
    ) -> Iterator[Translation]:
        """Translates lines as they come, a window of them at a time, in memory that does not grow with their number.

        Empty lines stay empty. A line of more than `max_len` pieces is translated sentence by sentence; one that cannot
        be cut raises ValueError with its number.
        """
        settings = settings or self.settings
        forced = self.tokenizer.encode(prefix, "tgt") if prefix else []
        lines, first = iter(lines), 1
        while window := list(islice(lines, WINDOW)):
            texts = self.parts(window, first)
            yield from self.joined(texts, self.find(texts, settings, forced, tick or _ignore), settings)
            first += len(window)

    def parts(self, texts: Sequence[str], first: int) -> list[list[list[int]]]:
        """Gives the ids of each text: one part, several where it is too long, none where it is empty."""
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

    def find(
        self, texts: list[list[list[int]]], settings: DecodeSettings, forced: list[int], tick: Tick
    ) -> list[list[Hypothesis]]:
        """Finds hypotheses of each part of each text; the first part of a text begins with the forced ids."""
        parts = [part for text in texts for part in text]
        begins = [place == 0 for text in texts for place in range(len(text))]
        found: list[list[Hypothesis]] = [[] for _ in parts]
        tick(sum(not text for text in texts))
        prefixes = [forced if begin else [] for begin in begins]
        with _at_rest(self.model):
            for i, hypotheses in self._search(parts, settings, prefixes):
                found[i] = hypotheses
                tick(begins[i])
        return found

    def joined(
        self, texts: list[list[list[int]]], found: list[list[Hypothesis]], settings: DecodeSettings
    ) -> Iterator[Translation]:
        """Makes one translation of each text from what was found for its parts."""
        separator = "" if language(self.tgt_lang) in WRITTEN_WITHOUT_SPACES else " "
        rest = iter(found)
        for text in texts:
            mine = list(islice(rest, len(text)))
            yield make_translation(text, mine, self.tokenizer, separator, settings.length_penalty)

    def _search(
        self, parts: list[list[int]], settings: DecodeSettings, prefixes: list[list[int]]
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Searches batch by batch, or on a GPU as places become free; without Python where a model can."""
        search, alone = choose(SEARCH, settings.method, "method"), settings.method in ALONE and not any(prefixes)
        if self.shortlist is not None and not (alone and isinstance(self.model, NativeTransformer)):
            raise ValueError(
                "a shortlist is for greedy and beam search without prefix and trace, in compiled code on a CPU: leave "
                "it out"
            )
        if alone and isinstance(self.model, SlottedTransformer):
            yield from search_all(self.model, parts, settings)
            return
        device = next(self.model.parameters()).device
        for batch in batches(parts, settings.batch_tokens):
            src = make_source([parts[i] for i in batch]).to(device)
            if alone and isinstance(self.model, NativeTransformer):
                words = None if self.shortlist is None else self.shortlist.words([parts[i] for i in batch])
                found = native_search(self.model, src, settings, words)
            else:
                found = search(self.model, src, settings, [prefixes[i] for i in batch])
            yield from zip(batch, found, strict=True)


def batches(parts: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Tells which parts are searched together, each closed by EOS."""
    return length_sorted([len(part) + 1 for part in parts], batch_tokens)


def language(code: str) -> str:
    """Gives the language of a code such as `zh-CN` or `zho_Hans`."""
    return re.split("[-_]", code.lower())[0]


@contextmanager
def _at_rest(model: Seq2Seq) -> Iterator[None]:
    """Switches dropout off for a while."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _ignore(n_lines: int) -> None:
    """Shows no progress."""

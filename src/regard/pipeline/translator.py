"""Texts -> translations."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import DecodeSettings, choose
from regard.data.normalise import is_unspaced, language_code
from regard.data.sentences import Part, split_parts
from regard.data.tokenizer import Tokenizer
from regard.engine import Engine
from regard.padding import Ids
from regard.pipeline.recovery import ReadPart, has_failed, search_again
from regard.pipeline.shortlist import Shortlist
from regard.search.constraint import Constraint
from regard.search.hypothesis import Hypothesis, normalised

if TYPE_CHECKING:
    from regard.checkpoint.weights import Checkpoint
    from regard.model import Seq2Seq
    from regard.pipeline.glossary import Glossary


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
    warning: str | None = None  # what was done to the text that may have harmed its translation


WRITTEN_WITHOUT_SPACES = {"zh", "zho", "cmn", "yue", "wuu", "lzh", "ja", "jpn"}


@dataclass(frozen=True)
class SegmentedText:
    """The ids of each part of a text that is read by itself, what to write between their translations, and a warning.

    `gaps` begin with what is written before the first part and end with what is written after the last. `texts` are the
    parts as they were given, where the text is known.
    """

    parts: list[list[int]]
    gaps: list[str]
    warning: str | None = None
    texts: list[str] = field(default_factory=list)

    def first(self, n_parts: int) -> "SegmentedText":
        """Return the text up to some part."""
        return SegmentedText(self.parts[:n_parts], [*self.gaps[:n_parts], ""], self.warning, self.texts[:n_parts])

    def join(self, texts: Sequence[str]) -> str:
        """Join the translations of the parts; around an empty one only line breaks remain."""
        joined = self.gaps[0]
        for text, gap in zip(texts, self.gaps[1:], strict=True):
            joined += text + (gap if text or "\n" in gap else "")
        return joined

    def offsets(self, texts: Sequence[str]) -> list[int]:
        """Return where the translation of each part begins in the joined one."""
        places, at = [], len(self.gaps[0])
        for text, gap in zip(texts, self.gaps[1:], strict=True):
            places.append(at)
            at += len(text) + (len(gap) if text or "\n" in gap else 0)
        return places


UNREAD = SegmentedText([[]], ["", ""])  # of what was written without a source


def make_translation(
    source: SegmentedText, found: Sequence[Sequence[Hypothesis]], tokenizer: Tokenizer, length_penalty: float
) -> Translation:
    """Join what was found for the parts of a text: best with best, second with second; no parts are an empty text.

    A part of which fewer were found takes part with its last. The score is that of the parts as one hypothesis.
    """
    source_tokens = tokenizer.pieces([token for ids in source.parts for token in ids], "src")
    if not found:
        return Translation("", 0.0, [], source_tokens, [])
    ranks = range(max(len(hypotheses) for hypotheses in found))
    joint = [[hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found] for rank in ranks]
    texts = [source.join([tokenizer.decode(part.ids) for part in parts]) for parts in joint]
    scores = [_score(parts, length_penalty) for parts in joint]
    tokens = tokenizer.pieces([token for part in joint[0] for token in part.ids], "tgt")
    alternatives = [Alternative(text, score) for text, score in zip(texts, scores, strict=True)]
    return Translation(texts[0], scores[0], tokens, source_tokens, alternatives, source.warning)


def _score(parts: Sequence[Hypothesis], length_penalty: float) -> float:
    length = sum(len(part.token_log_probs) for part in parts)
    return normalised(fsum(part.log_prob for part in parts), length, length_penalty)


MOST_AGAIN = 16  # parts of one text that are searched for again
WINDOW = 2000  # lines that are read before they are sorted: enough for even batches, little for the memory

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
    folder: Path | None = None  # where the model lies, with what was measured of it

    @classmethod
    def from_checkpoint(cls, checkpoint: "Checkpoint", engine: Engine) -> "Translator":
        """Return a translator of a model as it was saved, on an engine of it."""
        made = checkpoint.settings
        languages = made.data.src_lang, made.data.tgt_lang
        return cls(engine, checkpoint.tokenizer, made.decode, *languages, made.text.max_len)

    def between(self, src_lang: str | None, tgt_lang: str | None) -> "Translator":
        """Return the translator of another pair of languages, in a model that knows several; of others, itself."""
        known = self.tokenizer.known_languages
        if not known or not (src_lang or tgt_lang):
            return self
        src_lang, tgt_lang = src_lang or self.src_lang, tgt_lang or self.tgt_lang
        for language in (src_lang, tgt_lang) if self.tokenizer.names_source else (tgt_lang,):
            choose(dict.fromkeys(known), language, "language of this model")
        tokenizer = replace(self.tokenizer, languages=(src_lang, tgt_lang))
        settings = replace(self.settings, forced_bos=tokenizer.forced_bos)
        return replace(self, tokenizer=tokenizer, settings=settings, src_lang=src_lang, tgt_lang=tgt_lang)

    def in_language(self, settings: DecodeSettings) -> DecodeSettings:
        """Return settings by which targets begin with their language, in a model that says it so."""
        first = self.tokenizer.forced_bos
        return settings if first is None else replace(settings, forced_bos=first)

    @property
    def model(self) -> "Seq2Seq":
        """The plain PyTorch modules that this translator decodes as."""
        return self.engine.model

    def translate(
        self,
        texts: Sequence[str] | str,
        settings: DecodeSettings | None = None,
        prefix: str = "",
        glossary: "Glossary | None" = None,
    ) -> list[Translation]:
        """Translate one text or several; each translation begins with the prefix, and keeps to the glossary."""
        if isinstance(texts, bytes) or not isinstance(texts, Iterable):
            raise ValueError(f"texts must be a string or a list of strings, got {type(texts).__name__}")
        return list(self.stream([texts] if isinstance(texts, str) else texts, settings, prefix, glossary=glossary))

    def stream(
        self,
        lines: Iterable[str],
        settings: DecodeSettings | None = None,
        prefix: str = "",
        tick: Tick | None = None,
        glossary: "Glossary | None" = None,
    ) -> Iterator[Translation]:
        """Translate lines as they come, a window of them at a time, in memory that does not grow with their number.

        Empty lines stay empty. A line is translated sentence by sentence, or whole, as `settings.split` says; what is
        longer than `max_len` tokens is cut in any case, and a translation has a warning where that was in mid-sentence.
        A sentence with terms of the glossary is translated so that their translations are in it.
        """
        settings = self.in_language(settings or self.settings)
        if glossary is not None:
            check_glossary(settings)
        forced = self.tokenizer.encode(prefix, "tgt") if prefix else []
        lines = iter(lines)
        done = 0
        while window := list(islice(lines, WINDOW)):
            check_texts(window, done)
            done += len(window)
            texts = self.segment(window, settings)
            constraints = term_constraints(texts, glossary)
            rewritten = None if constraints is None else self.rewritten(texts, glossary)
            found = self.search(texts, settings, forced, tick or _ignore, constraints, rewritten)
            yield from self.merge(texts, self.recover(texts, found, settings, forced, constraints), settings)

    def segment(self, texts: Sequence[str], settings: DecodeSettings | None = None) -> list[SegmentedText]:
        """Return the parts of each text, none where it is empty: its sentences, those that are too long cut further."""
        by_sentence = (settings or self.settings).split == "sentences"

        def count(text: str) -> int:
            return len(self.tokenizer.encode(text, "src"))

        cut = [split_parts(text, count, self.max_len, by_sentence) for text in texts]
        encoded = iter(self.tokenizer.encode_batch((part.text for parts in cut for part in parts), "src"))
        return [self._segmented(parts, list(islice(encoded, len(parts)))) for parts in cut]

    def _segmented(self, parts: list[Part], encoded: list[list[int]]) -> SegmentedText:
        with_spaces = language_code(self.tgt_lang) not in WRITTEN_WITHOUT_SPACES
        ids, gaps = [], [""]
        for part, tokens in zip(parts, encoded, strict=True):
            gap = _gap(part, with_spaces)
            if tokens:
                ids.append(tokens)
                gaps.append(gap)
            elif "\n" in gap:
                gaps[-1] += gap
        if "\n" not in gaps[-1]:
            gaps[-1] = ""
        n_forced = sum(part.forced for part in parts)
        places = f"{n_forced} place{'s' * (n_forced != 1)}"
        warning = f"cut in mid-sentence at {places}, since the model reads {self.max_len} tokens at once"
        texts = [part.text for part, tokens in zip(parts, encoded, strict=True) if tokens]
        return SegmentedText(ids, gaps, warning if n_forced else None, texts)

    def search(
        self,
        texts: list[SegmentedText],
        settings: DecodeSettings,
        forced: list[int],
        tick: Tick,
        constraints: "PartConstraints | None" = None,
        rewritten: Sequence[Ids] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each part of each text; the first part of a text begins with the forced ids.

        Where there are constraints, there are some, or none, for each part, which may be read in another form.
        """
        self.tokenizer.check_languages()
        settings = self.in_language(settings)
        parts = [part for text in texts for part in text.parts]
        begins = [index == 0 for text in texts for index in range(len(text.parts))]
        found: list[list[Hypothesis]] = [[] for _ in parts]
        tick(sum(not text.parts for text in texts))
        prefixes = [forced if begin else [] for begin in begins] if forced else None
        vocabulary = None if self.shortlist is None else self.shortlist.words
        for i, hypotheses in self.engine.search(parts, settings, prefixes, vocabulary, constraints, rewritten):
            found[i] = hypotheses
            tick(begins[i])
        return found

    def rewritten(self, texts: Iterable[SegmentedText], glossary: "Glossary | None") -> list[Ids] | None:
        """Return the parts of texts with terms in translation, where the model can read as much at once."""
        if glossary is None:
            return None
        parts = [(part, ids) for text in texts for part, ids in zip(text.texts, text.parts, strict=True)]
        encoded = self.tokenizer.encode_batch((glossary.rewritten(part) for part, _ in parts), "src")
        return [new if len(new) <= self.max_len else ids for new, (_, ids) in zip(encoded, parts, strict=True)]

    def recover(
        self,
        texts: Sequence[SegmentedText],
        found: list[list[Hypothesis]],
        settings: DecodeSettings,
        forced: Sequence[int] = (),
        constraints: "PartConstraints | None" = None,
    ) -> list[list[Hypothesis]]:
        """Search once more for the parts of which the search has failed (`recovery.py`); the others stay as they are.

        Samples are as they were drawn, and of one text no more than MOST_AGAIN parts are searched for again.
        """
        if settings.method == "sample" or not settings.retry:
            return found
        failed: dict[int, ReadPart] = {}
        first = 0
        for text in texts:
            own = None if constraints is None else constraints[first : first + len(text.parts)]
            parts = enumerate(self._read_parts(text, forced, own), start=first)
            some = ((at, part) for at, part in parts if has_failed(part, found[at][0], self.tokenizer))
            failed.update(islice(some, MOST_AGAIN))
            first += len(text.parts)
        if not failed:
            return found
        places, again = list(failed), list(found)
        for i, hypotheses in search_again(self.engine.decoder, list(failed.values()), settings, self.tokenizer):
            again[places[i]] = hypotheses
        return again

    def _read_parts(
        self, text: SegmentedText, forced: Sequence[int], constraints: "PartConstraints | None"
    ) -> Iterator[ReadPart]:
        for index, ids in enumerate(text.parts):
            source = text.texts[index] if text.texts else self.tokenizer.decode(ids, "src")
            yield ReadPart(source, ids, () if index else forced, constraints[index] if constraints else ())

    def merge(
        self, texts: list[SegmentedText], found: list[list[Hypothesis]], settings: DecodeSettings
    ) -> Iterator[Translation]:
        """Yield one translation of each text from the hypotheses of its parts."""
        rest = iter(found)
        for text in texts:
            mine = list(islice(rest, len(text.parts)))
            yield make_translation(text, mine, self.tokenizer, settings.length_penalty)


PartConstraints = Sequence[Sequence[Constraint]]


def term_constraints(texts: Iterable[SegmentedText], glossary: "Glossary | None") -> PartConstraints | None:
    """Return what the translation of each part of each text must contain, None where that is nothing at all."""
    if glossary is None:
        return None
    found = [glossary.constraints(part) for text in texts for part in text.texts]
    return found if any(found) else None


def check_glossary(settings: DecodeSettings, what: str = "a glossary") -> None:
    """Raise ValueError for a method that cannot keep to what a translation must contain."""
    if settings.method == "sample":
        raise ValueError(f"{what} needs beam or greedy search, got the method 'sample': use 'beam'")


def check_texts(texts: Sequence[Any], before: int = 0) -> None:
    """Raise ValueError for what is no text, counted from 0 after some that came before."""
    for number, text in enumerate(texts, start=before):
        if not isinstance(text, str):
            raise ValueError(f"a text must be a string, got {type(text).__name__} as number {number}: leave it out")


def _gap(part: Part, with_spaces: bool) -> str:
    """Return what follows the translation of a part: line breaks stay, and spaces where the language has them."""
    if "\n" in part.gap:
        return "".join(character for character in part.gap if character in "\r\n\t ")
    if not with_spaces or (part.forced and not part.gap and not is_unspaced(part.text[-1:])):
        return ""
    return part.gap if part.gap.strip(" ") == "" and part.gap else " "


def _ignore(n_lines: int) -> None:
    """Show no progress."""

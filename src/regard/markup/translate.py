"""Translating marked-up text: it is translated without its tags, which then go where their words went."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise

from regard.config import DecodeSettings, choose
from regard.data.normalise import normalise
from regard.data.tokenizer import Tokenizer
from regard.data.words import Span
from regard.markup.parse import KINDS, Element, MarkedDocument, MarkedText, parse, stand_in_pattern
from regard.markup.place import AttendedPart, PlacedElement, Placer, TextAttention, word_shares, words_of
from regard.padding import EOS
from regard.pipeline.glossary import Glossary, TargetVocabulary
from regard.pipeline.translator import (
    WINDOW,
    SegmentedText,
    Tick,
    Translation,
    Translator,
    check_glossary,
    check_texts,
    make_translation,
)
from regard.search.constraint import Constraint
from regard.search.hypothesis import Hypothesis
from regard.shapes import Array, Float, np
from regard.trace.attention_map import as_array
from regard.trace.head_choice import ALL_HEADS, HeadChoice, named_choices, saved_name
from regard.trace.run import read_cross


def translate_marked(
    translator: Translator,
    texts: Sequence[str] | str,
    settings: DecodeSettings | None = None,
    markup: str = "all",
    glossary: Glossary | None = None,
) -> list[Translation]:
    """Translate texts with tags and placeholders in them: `tags`, `placeholders` or `all`.

    Each tag and each placeholder is in the translation once, tags balanced as they were in the source. Texts between
    block tags, such as paragraphs, are translated by themselves.
    """
    given = [texts] if isinstance(texts, str) else texts
    return list(stream_marked(translator, given, settings, markup, glossary))


def stream_marked(
    translator: Translator,
    lines: Iterable[str],
    settings: DecodeSettings | None = None,
    markup: str = "all",
    glossary: Glossary | None = None,
    tick: Tick | None = None,
) -> Iterator[Translation]:
    """Translate marked-up lines as they come, as `Translator.stream` does plain ones."""
    settings = settings or translator.settings
    kind = choose(KINDS, markup, "kind of markup")
    check_glossary(settings, "marked-up text")
    work = MarkedTranslator(translator, settings, glossary)
    lines, done = iter(lines), 0
    while window := list(islice(lines, WINDOW)):
        check_texts(window, done)
        done += len(window)
        for translation in work.translate([parse(text, kind) for text in window]):
            yield translation
            if tick is not None:
                tick(1)


@dataclass(frozen=True, eq=False)
class TranslatedPart:
    """A part of a text that was read by itself, where it begins, and what was found for it."""

    start: int
    text: str
    ids: list[int]
    found: list[Hypothesis]

    def at(self, rank: int) -> Hypothesis:
        """Return a hypothesis by its rank, the last where there are fewer."""
        return self.found[min(rank, len(self.found) - 1)]


class MarkedTranslator:
    """A translator with what marked-up text needs besides: the target's vocabulary, and the attention of a run."""

    def __init__(self, translator: Translator, settings: DecodeSettings, glossary: Glossary | None):
        self.translator = translator
        self.tokenizer = translator.tokenizer
        self.settings = settings
        self.glossary = glossary

    @cached_property
    def vocabulary(self) -> TargetVocabulary:
        """The target side of the tokenizer."""
        return TargetVocabulary(self.tokenizer) if self.glossary is None else self.glossary.vocabulary

    @cached_property
    def attention(self) -> "CrossAttention":
        """What the model attends to."""
        return CrossAttention(self.translator)

    def translate(self, documents: list[MarkedDocument]) -> Iterator[Translation]:
        """Translate all texts of some documents together."""
        texts = [text for document in documents for text in document.texts]
        segmented = self.translator.segment([text.plain for text in texts], self.settings)
        constraints = [
            self._constraints(part, text) for text, cut in zip(texts, segmented, strict=True) for part in cut.texts
        ]
        wanted = constraints if any(constraints) else None
        rewritten = None if wanted is None else self.translator.rewritten(segmented, self.glossary)
        searched = self.translator.search(segmented, self.settings, [], _ignore, wanted, rewritten)
        found = iter(self.translator.recover(segmented, searched, self.settings, (), wanted))
        cuts = iter(segmented)
        for document in documents:
            own = list(islice(cuts, len(document.texts)))
            yield self._merge(document, own, [list(islice(found, len(cut.parts))) for cut in own])

    def _constraints(self, part: str, text: MarkedText) -> list[Constraint]:
        """Return what the translation of a part must contain: names of placeholders, and terms of the glossary."""
        terms = [] if self.glossary is None else self.glossary.constraints(part)
        names = [match[0] for match in stand_in_pattern(text.placeholders).finditer(part)]
        written = (tuple(self.vocabulary.phrases(name, endings=False)) for name in names)
        forced = [Constraint(phrases) for phrases in written if phrases]  # else no piece is a letter or a digit
        limit = self.translator.engine.decoder.limit if forced else None
        fits = limit is None or sum(each.longest_need for each in (*forced, *terms)) < limit
        return [*terms, *forced] if fits else terms

    def _merge(
        self, document: MarkedDocument, cuts: list[SegmentedText], found: list[list[list[Hypothesis]]]
    ) -> Translation:
        """Return the translation of a document, whose texts are put between what was kept."""
        ids = [part for cut in cuts for part in cut.parts]
        warning = next((cut.warning for cut in cuts if cut.warning is not None), None)
        whole = SegmentedText(ids, [""] * (len(ids) + 1), warning)
        flat = [part for each in found for part in each]
        translation = make_translation(whole, flat, self.tokenizer, self.settings.length_penalty)
        ranks = range(max(1, len(translation.alternatives)))
        written = [
            [self._written(*row, rank) for row in zip(document.texts, cuts, found, strict=True)] for rank in ranks
        ]
        texts = [document.join(each) for each in written]
        alternatives = [replace(each, text=text) for each, text in zip(translation.alternatives, texts, strict=False)]
        return replace(translation, text=texts[0], alternatives=alternatives)

    def _written(self, text: MarkedText, cut: SegmentedText, found: list[list[Hypothesis]], rank: int) -> str:
        """Return one translation of a text, with its tags and placeholders."""
        starts = part_starts(text.plain, cut.texts)
        parts = [TranslatedPart(*row) for row in zip(starts, cut.texts, cut.parts, found, strict=True)]
        said = [self.tokenizer.decode(part.at(rank).ids) for part in parts]
        target = cut.join(said)
        offsets = cut.offsets(said)

        def align() -> TextAttention:
            rows = zip(parts, said, offsets, strict=True)
            return TextAttention([self._aligned(text, part, part.at(rank), one, at) for part, one, at in rows])

        elements = sorted([*text.elements, *unsaid(text, target)], key=lambda each: each.start)
        return Writer(target, text).write(Placer(text.plain, target, align).place(elements))

    def _aligned(
        self, text: MarkedText, part: TranslatedPart, hypothesis: Hypothesis, said: str, offset: int
    ) -> AttendedPart:
        """Return which words of a part's translation, which begins at an offset, attended to which of its tokens."""
        plain = part.text if self.tokenizer.exact else normalise(part.text)
        src = self.tokenizer.spans(part.text, "src")[: len(part.ids)]
        tgt = token_spans(self.tokenizer, hypothesis.ids, said)
        words = words_of(said, tgt)
        shares = word_shares(words, tgt, self.attention.shares(part.ids, hypothesis.ids)[:, : len(src)])
        for name in stand_in_pattern(text.placeholders).finditer(plain):
            columns, here = overlapping(src, name.span()), stand_in_pattern({name[0]: ""}).search(said)
            if here is not None:  # what is copied is known
                shares[:, columns] = 0
                rows = overlapping(words, here.span())
                shares[rows] = 0
                shares[np.ix_(rows, columns)] = 1 / max(1, len(columns))
        moved = [(offset + start, offset + stop) for start, stop in words]
        length = len if self.tokenizer.exact else normalised_length
        return AttendedPart(part.start, part.text, src, moved, shares, length)


class CrossAttention:
    """How much each token of a translation attends to each of its source, by the heads that align a model's words."""

    def __init__(self, translator: Translator):
        self.engine = translator.engine
        self.folder = translator.folder

    def shares(self, source: list[int], written: list[int]) -> Float[Array, "T S"]:
        """Read a pair again, and return each token's attention to the source, its end left out, as shares of one."""
        layers = read_cross(self.engine, source, [*written, EOS])
        choice = self._choice(layers[0].n_heads, len(layers))
        some = layers if choice.layer is None else layers[choice.layer : choice.layer + 1]
        weights = np.stack([as_array(each.weights(choice.head)) for each in some])
        mean = weights.mean(0) if choice.head is not None else weights.mean((0, 1))
        later = int(choice.at == "read")
        kept = mean[later : later + len(written), : len(source)]
        return kept / np.maximum(kept.sum(1, keepdims=True), 1e-9)

    def _choice(self, n_heads: int, n_layers: int) -> HeadChoice:
        name = None if self.folder is None else saved_name(self.folder, "heads")
        return ALL_HEADS if name is None else named_choices(name, (n_layers, n_heads))[0]


class Writer:
    """Writes a translation with its tags, placeholders in the place of their names, and entities as in its source."""

    def __init__(self, target: str, text: MarkedText):
        self.target = target
        self.left = dict(text.placeholders)  # not written yet
        self.names = stand_in_pattern(text.placeholders)
        self.entities = str.maketrans(text.entities)
        self.skips_space = False  # a space that an entity has replaced

    def write(self, elements: list[PlacedElement]) -> str:
        """Return the translation with its elements."""
        return self._between(elements, 0, len(self.target))

    def _between(self, elements: list[PlacedElement], start: int, stop: int) -> str:
        written, at = "", start
        for each in sorted(elements, key=lambda each: each.start):  # those at one place stay in their order
            begin, end = max(at, each.start), max(at, each.stop)
            written += self._plain(at, begin)
            if each.element.is_space:
                self.skips_space = not written.endswith(" ")
                written = written.removesuffix(" ")
            inner = self._between(each.inner, begin, end)
            written += each.element.opening + inner + each.element.closing
            at = end
        return written + self._plain(at, stop)

    def _plain(self, start: int, stop: int) -> str:
        text, written, done = self.target[start:stop], "", 0
        if self.skips_space and text:
            text, self.skips_space = text.removeprefix(" "), False
        for name in self.names.finditer(text):
            before = text[done : name.start()]
            known = self.left.pop(name[0], None)
            # A name that is said twice is a placeholder once.
            written += before.translate(self.entities) if known is not None else before.rstrip(" ")
            written += known or ""
            done = name.end()
        return written + text[done:].translate(self.entities)


def unsaid(text: MarkedText, target: str) -> list[Element]:
    """Return the placeholders that a translation lacks, to be placed as tags are."""
    said = {match[0] for match in stand_in_pattern(text.placeholders).finditer(target)}
    lacking = ((name, text.plain.find(name)) for name in text.placeholders if name not in said)
    return [Element(text.placeholders[name], at, at) for name, at in lacking]


def part_starts(plain: str, parts: Sequence[str]) -> list[int]:
    """Return where each part of a text begins."""
    starts, at = [], 0
    for part in parts:
        starts.append(plain.index(part, at))
        at = starts[-1] + len(part)
    return starts


def token_spans(tokenizer: Tokenizer, ids: list[int], text: str) -> list[Span]:
    """Return the characters that each token wrote, without spaces; of a character's bytes the last one wrote it."""
    ends = [0]
    for n in range(1, len(ids) + 1):
        ends.append(max(ends[-1], _n_shared(tokenizer.decode(ids[:n]), text)))
    return [(stop - len(text[start:stop].lstrip()), stop) for start, stop in pairwise(ends)]


def _n_shared(one: str, other: str) -> int:
    """Count the characters with which both texts begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def overlapping(spans: Sequence[Span], span: Span) -> list[int]:
    """Return which spans share a character with one."""
    return [i for i, (start, stop) in enumerate(spans) if start < span[1] and stop > span[0]]


def normalised_length(text: str) -> int:
    """Return how long a text is as a model reads it."""
    return len(normalise(text))


def _ignore(n_lines: int) -> None:
    """Show no progress: a line is done when its tags are placed."""

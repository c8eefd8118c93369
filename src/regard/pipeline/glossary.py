"""Glossaries: how terms are to be translated, where a text has them, and what its translation must then contain."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import ClassVar, Literal, NamedTuple

from regard.config import choose
from regard.data.files import read_lines
from regard.data.normalise import is_unspaced, normalise, simplify
from regard.data.tokenizer import Tokenizer
from regard.padding import BOS, EOS, PAD, UNK
from regard.search.constraint import Constraint, Phrase

Use = Literal["forced", "preferred"]
USES: dict[str, Use] = {"forced": "forced", "preferred": "preferred"}
BONUS = 4.0  # of a preferred term, in nats: what its translation may cost; benchmarks/terminology.py measures others
LONGEST_ENDING = 3  # letters that may follow a variant within its word: the s of servers, the ed of clicked
WIDTHS = {0x3000: " ", **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}}  # full width -> ASCII
_SPACE, _BYTE = "▁", re.compile(r"<0x[0-9A-F]{2}>")
# What may stand before a variant in a text: nothing, and signs of both kinds after which no space is written.
CONTEXTS = ("", "，", "(")


@dataclass(frozen=True)
class GlossaryTerm:
    """A term of the source language, its translations, and whether one of them must be used or had better be."""

    source: str
    variants: tuple[str, ...]
    use: Use = "forced"
    where: str = ""  # file and line


class Occurrence(NamedTuple):
    """A term and the characters of a normalised text that it covers."""

    start: int
    stop: int
    term: GlossaryTerm


class Glossary:
    """Terms and their translations, for the models that share a tokenizer.

    A term without capital letters is found however it is written, one with capitals just as it is; neither within a
    longer word. Of terms that overlap the first counts, and of those that begin together the longest.
    """

    bonus: ClassVar[float] = BONUS

    def __init__(self, terms: Iterable[GlossaryTerm] | Mapping[str, str | Sequence[str]], tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self._cased: dict[str, GlossaryTerm] = {}
        self._uncased: dict[str, GlossaryTerm] = {}
        for given in terms:
            self._add(given if isinstance(given, GlossaryTerm) else _term(given, terms[given]))  # pyright: ignore
        self._lengths = _lengths([*self._cased, *self._uncased])
        self._constraints: dict[GlossaryTerm, Constraint] = {}
        self._check_written()

    @classmethod
    def read(cls, path: str | PathLike[str], tokenizer: Tokenizer, reverse: bool = False) -> "Glossary":
        """Read a file of lines `term<TAB>translation|another<TAB>preferred`.

        The third column may be left out: a term is then forced. Lines that begin with # are comments. With `reverse`
        the translations are the terms to be found, and the terms their translation.
        """
        terms = read_terms(str(path))
        return cls(reversed_terms(terms) if reverse else terms, tokenizer)

    def __len__(self) -> int:
        return len(self._cased) + len(self._uncased)

    def find(self, text: str) -> list[Occurrence]:
        """Return where a text has terms, in time linear in its length, whatever the number of terms."""
        cased = self._key(text)
        uncased, at, found = _lowered(cased), 0, []
        while at < len(cased):
            occurrence = self._longest(cased, uncased, at)
            if occurrence is None:
                at += 1
            else:
                found.append(occurrence)
                at = occurrence.stop
        return found

    def constraints(self, text: str) -> list[Constraint]:
        """Return what the translation of a sentence must contain, or had better contain: one for each occurrence."""
        return [self._constraint(each.term) for each in self.find(text)]

    def rewritten(self, text: str) -> str:
        """Return a text as the model reads it, with its forced terms in translation: their first variants, as words."""
        plain, written, at = normalise(text), "", 0
        for start, stop, term in self.find(text):
            if term.use == "forced":
                written = _as_words(written + plain[at:start], term.variants[0])
                at = stop
                if is_letter(written[-1]) and is_unspaced(plain[at : at + 1]):
                    written += " "
        return written + plain[at:]

    def _longest(self, cased: str, uncased: str, at: int) -> Occurrence | None:
        lengths = self._lengths.get(uncased[at], ())
        if not lengths or is_within_word(cased, at):
            return None
        for length in lengths:
            stop = at + length
            term = self._cased.get(cased[at:stop]) or self._uncased.get(uncased[at:stop])
            if term is not None and stop <= len(cased) and not is_within_word(cased, stop):
                return Occurrence(at, stop, term)
        return None

    def _key(self, text: str) -> str:
        """Return a text as the model reads it, with full-width letters narrowed; nothing moves."""
        plain = normalise(text).translate(WIDTHS)
        return simplify(plain) if "src" in self.tokenizer.simplified else plain

    def _add(self, term: GlossaryTerm) -> None:
        """Enter a term, or add its variants to those that it has already."""
        where, key = f"{term.where}: " * bool(term.where), self._key(term.source)
        variants = tuple(dict.fromkeys(map(normalise, term.variants)))
        if not key or not variants or not all(variants):
            given = f"{term.source!r} and {list(term.variants)!r}"
            raise ValueError(f"{where}a term and its translations must not be empty, got {given}: leave the line out")
        table = self._uncased if key == _lowered(key) else self._cased
        known = table.get(key)
        if known is not None and known.use != term.use:
            raise ValueError(
                f"{where}a term must be forced or preferred, got {term.source!r} as both: leave one of its lines out"
            )
        before = () if known is None else known.variants
        table[key] = GlossaryTerm(term.source, tuple(dict.fromkeys((*before, *variants))), term.use, term.where)

    def _check_written(self) -> None:
        """Raise ValueError for a variant that the model's vocabulary cannot write."""
        pairs = [
            (term, each) for table in (self._cased, self._uncased) for term in table.values() for each in term.variants
        ]
        for (term, variant), ids in zip(
            pairs, self.tokenizer.encode_batch((each for _, each in pairs), "tgt"), strict=True
        ):
            if UNK in ids or not ids:
                where = f"{term.where}: " * bool(term.where)
                raise ValueError(
                    f"{where}a translation must consist of what the model can write, got {variant!r} for "
                    f"{term.source!r}: spell it otherwise, or leave it out"
                )

    def _constraint(self, term: GlossaryTerm) -> Constraint:
        if term not in self._constraints:
            phrases = [phrase for each in term.variants for phrase in self.vocabulary.phrases(each)]
            begun = [phrase for each in term.variants for phrase in self.vocabulary.beginnings(each)]
            variants = tuple(dict.fromkeys((*phrases, *begun)))
            self._constraints[term] = Constraint(variants, None if term.use == "forced" else self.bonus)
        return self._constraints[term]

    @cached_property
    def vocabulary(self) -> "TargetVocabulary":
        """The target side of the tokenizer."""
        return TargetVocabulary(self.tokenizer)


class TargetVocabulary:
    """Which tokens of a target begin a word, go on with one, or end within one."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        pieces = tokenizer.pieces(range(tokenizer.vocab_size("tgt")), "tgt")
        plain = [(i, piece) for i, piece in enumerate(pieces) if not _BYTE.fullmatch(piece) and piece != _SPACE]
        going_on = [(i, piece) for i, piece in plain if is_letter(piece[:1])]
        self.pieces = pieces
        # Tokens after which no sentence begins: all but signs. A lone space may be behind a word.
        self.saying = frozenset(i for i, piece in plain if any(map(str.isalnum, piece))) - {PAD, UNK, BOS, EOS}
        self.saying |= {i for i, piece in enumerate(pieces) if piece == _SPACE}
        self.ending_in_letter = frozenset(i for i, piece in plain if is_letter(piece[-1:]))
        self.beginning_in_letter = frozenset(i for i, _ in going_on)
        self.longer_than_endings = frozenset(
            i for i, piece in going_on if len(piece) > LONGEST_ENDING or not piece.isalpha()
        )

    def phrases(self, text: str, endings: bool = True) -> list[Phrase]:
        """Return the tokens by which a text is written at the beginning and within a sentence, as words of their own.

        With `endings` its last word may go on with an ending, as the model likes.
        """
        after = self.longer_than_endings if endings else self.beginning_in_letter
        found = []
        for tokens in self._forms(text):
            begun = self.pieces[tokens[0]].startswith(_SPACE) or not is_letter(text[0])
            not_after = frozenset() if begun else self.ending_in_letter
            found.append(Phrase(tokens, not_after, after if is_letter(text[-1]) else frozenset()))
        return found

    def beginnings(self, text: str) -> list[Phrase]:
        """Return the tokens of a text that begins small, as a sentence begins with it."""
        first = text[0].upper()
        if first == text[0] or len(first) > 1:
            return []
        return [replace(each, not_after=each.not_after | self.saying) for each in self.phrases(first + text[1:])]

    def _forms(self, text: str) -> list[tuple[int, ...]]:
        forms, written = {}, self.tokenizer.decode(self.tokenizer.encode(text, "tgt"))
        for context in CONTEXTS:
            before, both = (self.tokenizer.encode(each, "tgt") for each in (context, context + text))
            tokens = both[len(before) :]
            same = both[: len(before)] == before and UNK not in tokens and self.tokenizer.decode(tokens) == written
            if same:
                bare = tokens[1:] if is_unspaced(text) and self.pieces[tokens[0]] == _SPACE else tokens
                forms[tuple(bare)] = None
        return list(forms)


def is_letter(character: str) -> bool:
    """Tell whether a character is part of words that spaces part."""
    known = character.isalnum() or character == "_" or unicodedata.category(character or " ")[0] == "M"
    return known and not is_unspaced(character)


def is_within_word(text: str, place: int) -> bool:
    """Tell whether a word goes on from one side of a place to the other."""
    return 0 < place < len(text) and is_letter(text[place - 1]) and is_letter(text[place])


def read_terms(source: str) -> Iterator[GlossaryTerm]:
    """Yield the terms of a file, - being stdin; raise ValueError for a line that holds none."""
    for number, line in enumerate(read_lines(source), start=1):
        if line.strip() and not line.startswith("#"):
            yield _parse(line, f"{source}:{number}")


def reversed_terms(terms: Iterable[GlossaryTerm]) -> Iterator[GlossaryTerm]:
    """Turn terms round: each translation is a term."""
    return (GlossaryTerm(each, (term.source,), term.use, term.where) for term in terms for each in term.variants)


def _parse(line: str, where: str) -> GlossaryTerm:
    columns = [column.strip() for column in (line[1:] if line.startswith("\\#") else line).split("\t")]
    while len(columns) > 2 and not columns[-1]:
        columns.pop()
    if not 2 <= len(columns) <= 3:
        raise ValueError(
            f"{where}: a line must be a term, a tab and its translations, and perhaps a tab and forced or preferred, "
            f"got {line!r}: separate by tabs, or put # in front of a comment"
        )
    try:
        use = choose(USES, columns[2], "use of a term") if len(columns) == 3 else "forced"
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return GlossaryTerm(columns[0], tuple(each.strip() for each in columns[1].split("|")), use, where)


def _as_words(before: str, word: str) -> str:
    """Append a word, with a space where letters would follow a script without any."""
    return before + " " * (is_unspaced(before[-1:]) and before[-1:].isalnum() and is_letter(word[0])) + word


def _term(source: str, variants: str | Sequence[str]) -> GlossaryTerm:
    return GlossaryTerm(source, (variants,) if isinstance(variants, str) else tuple(variants))


def _lengths(keys: Iterable[str]) -> dict[str, list[int]]:
    """Return the lengths of the terms that begin with each character, longest first."""
    found: dict[str, set[int]] = {}
    for key in keys:
        found.setdefault(_lowered(key[0]), set()).add(len(key))
    return {first: sorted(lengths, reverse=True) for first, lengths in found.items()}


def _lowered(text: str) -> str:
    """Write letters small, each in its place: İ, which would become two, stays."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)

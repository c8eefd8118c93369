"""Do glossaries put their terms into translations, at what cost, and do tags come through in their places?

Terms: sentence pairs of which a dictionary knows a word on both sides. Half of the terms ask for the reference's own
word, half for another that the dictionary has and the model does not write by itself; of Chinese ones for such as share
a character with the reference's, since others mostly have another sense. A term counts as written where
the translation has it as a word of its own, or with an ending, as often as the source has the term. BLEU of the rest is
that of outputs and references from which the planted words, the dictionary's and the reference's, were taken out; it
does not see whether a term is where it belongs, so the share of outputs is counted that have the reference's word too.

Tags: a word whose translation is known, a number or name that is copied or a word of the dictionary, is marked in the
source, or two such words that are neighbours. Tags are in place where they stand around the whole translation of what
is marked and around none of another known word, and exact where they stand around nothing else.
"""

import argparse
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import sacrebleu
from measure import keep
from rich.console import Console
from rich.table import Table

from regard.data.files import read_lines
from regard.data.normalise import normalise
from regard.data.words import Span
from regard.markup import strip_markup, translate_marked
from regard.pipeline import load_translator
from regard.pipeline.glossary import USES, Glossary, GlossaryTerm
from regard.pipeline.translator import Translator
from regard.study.repeats import signature

CORPORA = ("zh-en-software", "zh-en-docs")
DICTIONARY = "zh-en-cedict/pairs.tsv.xz"
MOST_CHARACTERS = 200
TOO_FREQUENT = 0.02  # of the sentences: such a word is not a term
WORD = re.compile(r"[A-Za-z0-9]+(?:[.'’_-][A-Za-z0-9]+)*")
ENDINGS = r"(?:\w{1,3})?"


@dataclass(frozen=True)
class Planted:
    """A pair, what a model writes, a term of the source, the reference's word for it, and the one that is asked for."""

    source: str
    reference: str
    free: str
    term: str
    usual: str
    wanted: str


class Dictionary:
    """Words of Chinese and of English that translate each other."""

    def __init__(self, path: Path):
        self.english: dict[str, set[str]] = defaultdict(set)
        self.chinese: dict[str, set[str]] = defaultdict(set)
        for line in read_lines(str(path)):
            chinese, english = line.split("\t")
            english = english.removeprefix("to ").lower()
            if len(chinese) >= 2 and re.fullmatch("[a-z]{4,}", english):
                self.english[chinese].add(english)
                self.chinese[english].add(chinese)
        self.longest = max(map(len, self.english))

    def words(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of a Chinese text's words, longest first from the left."""
        found, at = [], 0
        while at < len(text):
            lengths = range(min(self.longest, len(text) - at), 1, -1)
            stop = next((at + n for n in lengths if text[at : at + n] in self.english), at + 1)
            found += [(at, stop)] * (stop > at + 1)
            at = stop
        return found

    def pairs(self, chinese: str, english: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the spans of words that occur once on each side and translate each other."""
        words = [(match.group().lower(), match.span()) for match in WORD.finditer(english)]
        for span in self.words(chinese):
            word = chinese[slice(*span)]
            hits = [place for text, place in words if _stem(text) in {_stem(each) for each in self.english[word]}]
            if chinese.count(word) == 1 and len(hits) == 1:
                yield span, hits[0]


def _stem(word: str) -> str:
    return next((word[: -len(end)] for end in ("ing", "ed", "es", "s") if word.endswith(end) and len(word) > 5), word)


def read(folder: Path, split: str, forward: bool) -> list[tuple[str, str]]:
    """Return the sources and references of both corpora, shuffled."""
    pairs = []
    for corpus in CORPORA:
        for line in read_lines(str(folder / corpus / f"{split}.tsv.xz")):
            chinese, english = map(normalise, line.split("\t"))
            if len(chinese) <= MOST_CHARACTERS and len(english) <= MOST_CHARACTERS:
                pairs.append((chinese, english) if forward else (english, chinese))
    random.Random(0).shuffle(pairs)
    return pairs


def plant(pairs: list[tuple[str, str]], free: list[str], words: Dictionary, forward: bool, n: int) -> list[Planted]:
    """Choose a term in each of n sentences: by turns one that asks for the usual word, and one for another."""
    counts = Counter(word.lower() for pair in pairs for word in {*WORD.findall(pair[forward])})
    planted: list[Planted] = []
    for (source, reference), output in zip(pairs, free, strict=True):
        chinese, english = (source, reference) if forward else (reference, source)
        for zh, en in words.pairs(chinese, english):
            word, gloss = chinese[slice(*zh)], english[slice(*en)].lower()
            term, usual = (word, gloss) if forward else (gloss, word)
            wanted = usual if len(planted) % 2 == 0 else _unusual(words, term, usual, output, forward)
            if counts[gloss] <= TOO_FREQUENT * len(pairs) and wanted is not None and len(planted) < n:
                planted.append(Planted(source, reference, output, term, usual, wanted))
                break
    return planted


def _unusual(words: Dictionary, term: str, usual: str, output: str, forward: bool) -> str | None:
    known = (words.english if forward else words.chinese).get(term, set())
    others = [each for each in sorted(known) if _stem(each) != _stem(usual) and each not in output.lower()]
    others = others if forward else [each for each in others if set(each) & set(usual)]
    return others[0] if others else None


def n_written(word: str, text: str, forward: bool) -> int:
    """Count a word in a text: of its own in English, perhaps with an ending, and anywhere in Chinese."""
    return len(re.findall(rf"\b{re.escape(word)}{ENDINGS}\b", text.lower())) if forward else text.count(word)


def rest(text: str, each: Planted, forward: bool) -> str:
    """Take the words for a term out of a text."""
    words = sorted({each.usual, each.wanted}, key=len, reverse=True)
    pattern = "|".join(rf"\b{word}{ENDINGS}\b" if forward else word for word in words)
    return re.sub(pattern, "", text, flags=re.IGNORECASE)


def bleu(outputs: list[str], references: list[str], forward: bool) -> float:
    """Score outputs in the language of the direction."""
    tokenize = "13a" if forward else "zh"
    return sacrebleu.corpus_bleu(outputs, [references], tokenize=tokenize, force=True).score


def measure_terms(
    translator: Translator, pairs: list[tuple[str, str]], words: Dictionary, n: int, use: str, beam: int
) -> dict[str, Any]:
    """Translate sentences that have a term each without a glossary, and with one of that term."""
    forward = translator.src_lang == "zh"
    settings = replace(translator.settings, beam=beam, method="beam" if beam > 1 else "greedy")
    free = [each.text for each in translator.translate([source for source, _ in pairs], settings)]
    planted = plant(pairs, free, words, forward, n)
    glossaries = [
        Glossary([GlossaryTerm(each.term, (each.wanted,), USES[use])], translator.tokenizer) for each in planted
    ]
    clock: dict[str, list[float]] = {"free": [], "again": [], "met": []}
    bound: list[str] = []
    for each, glossary in zip(planted, glossaries, strict=True):
        times = []
        for own in (None, glossary):
            if own is not None:
                own.constraints(each.source)  # the vocabulary is read once for a glossary, not for a sentence
            start = process_time()
            found = translator.translate(each.source, settings, glossary=own)[0].text
            times.append(process_time() - start)
        bound.append(found)
        clock["free"].append(times[0])
        clock["met" if found == each.free else "again"].append(times[1])
    groups = {"usual": planted[::2], "unusual": planted[1::2], "all": planted}
    outputs = {"usual": bound[::2], "unusual": bound[1::2], "all": bound}
    others = [source for source, _ in pairs[:n] if not glossaries[0].find(source)]
    kept = translator.translate(others, settings, glossary=glossaries[0])
    record: dict[str, Any] = {"model": f"{translator.src_lang}-{translator.tgt_lang}", "use": use, "beam": beam}
    record["others_unchanged"] = kept == translator.translate(others, settings)
    for name, some in groups.items():
        record[name] = _scores(some, outputs[name], forward)
    return record | {f"ms_{name}": 1000 * median(some) for name, some in clock.items() if some}


def _scores(planted: list[Planted], bound: list[str], forward: bool) -> dict[str, float]:
    """Return the share of terms that are written with and without a glossary, and BLEU of the rest."""
    n, both = len(planted), list(zip(planted, bound, strict=True))
    references = [rest(each.reference, each, forward) for each in planted]
    return {
        "n": n,
        "without": sum(bool(n_written(each.wanted, each.free, forward)) for each in planted) / n,
        "with": sum(n_written(each.wanted, text, forward) >= n_found(each, forward) for each, text in both) / n,
        "bleu_rest_without": bleu([rest(each.free, each, forward) for each in planted], references, forward),
        "bleu_rest_with": bleu([rest(text, each, forward) for each, text in both], references, forward),
        "usual_beside": sum(bool(n_written(each.usual, text.replace(each.wanted, " "), forward)) for each, text in both)
        / n,
        "searched_again": sum(each.free != text for each, text in both) / n,
    }


def n_found(each: Planted, forward: bool) -> int:
    """Count a term in its source."""
    return each.source.count(each.term) if forward else len(re.findall(rf"\b{each.term}\b", each.source.lower()))


@dataclass(frozen=True)
class Marked:
    """A source with a marked stretch, its translation, what the stretch must hold there, and what it must not."""

    text: str
    translation: str
    held: list[Span]
    others: list[Span]
    kind: str

    def stretch(self, found: str) -> Span | None:
        """Return what the tags stand around in the translation; None where they are not balanced, or it is another."""
        before, opening, rest = found.partition("<b>")
        inside, closing, after = rest.partition("</b>")
        whole = opening and closing and before + inside + after == self.translation
        return (len(before), len(before) + len(inside)) if whole else None


def known_words(source: str, output: str, words: Dictionary, forward: bool) -> list[tuple[Span, Span, str]]:
    """Return words that occur once on each side and belong together, by the dictionary or as copies."""
    chinese, english = (source, output) if forward else (output, source)
    found = [(zh, en, "dictionary") if forward else (en, zh, "dictionary") for zh, en in words.pairs(chinese, english)]
    sides = [[match.span() for match in WORD.finditer(text)] for text in (source, output)]
    for span in sides[0]:
        word = source[slice(*span)]
        same = [other for other in sides[1] if output[slice(*other)] == word]
        if len(same) == 1 and source.count(word) == 1:
            found.append((span, same[0], "copy"))
    return sorted(each for each in found if _whole(source, each[0]) and _whole(output, each[1]))


def _whole(text: str, span: Span) -> bool:
    """Tell whether a word is no part of a longer name such as a.b or x/y."""
    beside = text[max(0, span[0] - 1) : span[0]] + text[span[1] : span[1] + 1]
    return not re.search(r"[A-Za-z0-9_./:=*()\[\]\"'-]", beside) or not WORD.match(text[slice(*span)])


def mark(sources: list[str], outputs: list[str], words: Dictionary, forward: bool, n: int) -> list[Marked]:
    """Mark a word in each of n sentences, or two where the next word is known as well, by turns."""
    drawn, made = random.Random(1), list[Marked]()
    for source, output in zip(sources, outputs, strict=True):
        known = known_words(source, output, words, forward)
        if not known or len(made) == n:
            continue
        first = last = drawn.randrange(len(known))
        if len(made) % 2 and first + 1 < len(known) and _neighbours(known[first], known[first + 1]):
            last = first + 1
        start, stop = known[first][0][0], known[last][0][1]
        inside = [tgt for src, tgt, _ in known if start <= src[0] < stop]
        others = [tgt for src, tgt, _ in known if not start <= src[0] < stop and tgt not in inside]
        text = f"{source[:start]}<b>{source[start:stop]}</b>{source[stop:]}"
        kind = "phrase" if first < last else known[first][2]
        made.append(Marked(text, output, inside, others, kind))
    return made


def _neighbours(one: tuple[Span, Span, str], other: tuple[Span, Span, str]) -> bool:
    """Tell whether nothing but a space is between two words on either side, so that one stretch can hold both."""
    return all(0 <= max(a[0], b[0]) - min(a[1], b[1]) <= 1 for a, b in ((one[0], other[0]), (one[1], other[1])))


def measure_tags(
    translator: Translator, pairs: list[tuple[str, str]], words: Dictionary, n: int, show: bool
) -> dict[str, Any]:
    """Translate marked-up sentences, and see where the tags are."""
    forward = translator.src_lang == "zh"
    settings = replace(translator.settings, split="overlong")
    sources = [source for source, _ in pairs if strip_markup(source, "tags") == source]
    outputs = [each.text for each in translator.translate(sources, settings)]
    marked = mark(sources, outputs, words, forward, n)
    start = process_time()
    found = [each.text for each in translate_marked(translator, [each.text for each in marked], settings, "tags")]
    seconds = process_time() - start
    counts: Counter[str] = Counter()
    for each, text in zip(marked, found, strict=True):
        stretch = each.stretch(text)
        start, stop = stretch or (0, 0)
        held = all(start <= begin and end <= stop for begin, end in each.held)
        in_place = held and not any(begin < stop and end > start for begin, end in each.others)
        for kind in (each.kind, "all"):
            counts[kind] += 1
            counts[f"{kind} balanced"] += stretch is not None
            counts[f"{kind} in place"] += in_place
            counts[f"{kind} exact"] += [stretch] == each.held
        if not in_place and show:
            print(f"{each.text} → {text}")
    shares = {kind: {what: counts[f"{kind} {what}"] / counts[kind] for what in ("balanced", "in place", "exact")}
              | {"n": counts[kind]} for kind in ("copy", "dictionary", "phrase", "all")}  # fmt: skip
    return {"model": f"{translator.src_lang}-{translator.tgt_lang}", **shares, "ms": 1000 * seconds / len(marked)}


RUNS = (("forced", 5), ("forced", 1), ("preferred", 5))


def main() -> None:
    """Measures, shows and keeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="folder with zh-en-software, zh-en-docs and zh-en-cedict")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    parser.add_argument("--models", nargs="+", default=["zh-en", "en-zh"])
    parser.add_argument("--n", type=int, default=500, help="terms, and marked-up sentences")
    parser.add_argument("--pairs", type=int, default=1300, help="sentence pairs among which they are looked for")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--show", action="store_true", help="print what is out of place")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    words, terms, tags = Dictionary(given.corpora / DICTIONARY), [], []
    for name in given.models:
        translator = load_translator(name, given.precision)
        pairs = read(given.corpora, given.split, translator.src_lang == "zh")[: given.pairs]
        tags.append(measure_tags(translator, pairs, words, given.n, given.show))
        terms += [measure_terms(translator, pairs, words, given.n, *run) for run in RUNS]
    Console(width=140).print(terms_table(terms), tags_table(tags))
    sign = signature("cpu", split=given.split, n=given.n, pairs=given.pairs, precision=given.precision)
    keep("terminology-cpu", {"terms": terms, "tags": tags, "signature": sign}, given.results)


def terms_table(rows: list[dict[str, Any]]) -> Table:
    """List what became of terms."""
    table = Table(title="Terms: written without and with the glossary, BLEU of the rest")
    for head in ("model", "use", "beam", "terms", "n", "without", "with", "BLEU", "with", "usual too", "ms", "again"):
        table.add_column(head, justify="right")
    for row in rows:
        for group in ("usual", "unusual", "all"):
            some = row[group]
            shares = [f"{some[name]:.1%}" for name in ("without", "with")]
            scores = [f"{some[name]:.2f}" for name in ("bleu_rest_without", "bleu_rest_with")]
            scores.append(f"{some['usual_beside']:.1%}" if group == "unusual" else "")
            times = [f"{row[name]:.1f}" if name in row else "" for name in ("ms_free", "ms_again")]
            table.add_row(row["model"], row["use"], str(row["beam"]), group, str(some["n"]), *shares, *scores, *times)
    return table


def tags_table(rows: list[dict[str, Any]]) -> Table:
    """List where tags were."""
    table = Table(title="Tags around what is known")
    for head in ("model", "marked", "n", "balanced", "in place", "exact", "ms"):
        table.add_column(head, justify="right")
    for row in rows:
        for kind in ("copy", "dictionary", "phrase", "all"):
            some = row[kind]
            shares = [f"{some[name]:.1%}" for name in ("balanced", "in place", "exact")]
            table.add_row(row["model"], kind, str(some["n"]), *shares, f"{row['ms']:.1f}")
    return table


if __name__ == "__main__":
    main()

"""Marked-up text: what is translated, the tags around it, and placeholders, for which names stand in meanwhile."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

Kind = Literal["tags", "placeholders", "all"]
KINDS: dict[str, Kind] = {"tags": "tags", "placeholders": "placeholders", "all": "all"}
DEEPEST = 50  # tags within each other; deeper ones stand by themselves

# No attribute's value holds <, so that each character is read about once. What only looks like a tag is text: 1 <3.
TAG = re.compile(r"""<(/?)([A-Za-z][\w:.-]*)((?:[^<>"']|"[^"<]*"|'[^'<]*')*)>|<[!?][^<>]*>""")
COMMENT, COMMENT_END = "<!--", "-->"
ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,30}|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
# Tags between which texts stand by themselves, elements that hold no text, and those that are said as they are.
_BLOCKS = (
    "address article aside blockquote body br caption center dd details dialog div dl dt fieldset figcaption figure "
    "footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html legend li link main menu meta nav ol optgroup "
    "option p pre script section select style summary table tbody td textarea tfoot th thead title tr ul"
)
BLOCKS = frozenset(_BLOCKS.split(" "))
KEPT_WHOLE = frozenset(("script", "style", "pre", "textarea"))
SAID_AS_THEY_ARE = frozenset(("code", "kbd", "samp", "var"))
EMPTY = frozenset(("area", "base", "col", "embed", "img", "input", "source", "track", "wbr"))

_BRACES = r"\{[^{}]*\}"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
PLACEHOLDER = re.compile(
    "|".join(
        (
            r"(?:https?|ftp)://[!-~]*[\w/]|www\.[!-~]*[\w/]",  # addresses, in ASCII
            r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
            r"\$?\{\{[^{}]*\}\}|\$\{[^{}]*\}|\$\(" + _NAME + r"\)|\$" + _NAME,
            r"[%#]?\{\s*[\w.$:-]*\s*(?:[,|!][^{}]*(?:" + _BRACES + r"[^{}]*)*)?\}",  # {name}, {0}, {n, plural, …}
            r"%%|%\(" + _NAME + r"\)[-+#0]?\d*(?:\.\d+)?[A-Za-z]",
            r"(?<![0-9])%(?:\d+\$)?[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGcrsapnS@](?![A-Za-z0-9])",
            r"(?:(?<![0-9])|(?<=%[0-9]))%[0-9]{1,2}(?![0-9])",  # %1
        )
    ),
    re.ASCII,
)
_WORDLIKE = re.compile(r"[A-Za-z0-9_]")  # beside a placeholder: part of the same word, which is kept whole
_JOINING = frozenset("./\\-_:=@")
LETTERS = "XNZQWKVYJRMPTSDGHLCFBAEIOU"  # of stand-ins: those that models copied best come first


@dataclass
class Element:
    """A pair of tags around characters of a plain text, or a tag that stands alone before one of them."""

    opening: str
    start: int
    stop: int
    closing: str = ""
    inner: "list[Element]" = field(default_factory=list)

    @property
    def is_space(self) -> bool:
        """Whether it is white space that is written as an entity."""
        return self.opening.startswith("&")


@dataclass
class MarkedText:
    """A text without its tags, with names in the place of its placeholders, and both to put back."""

    plain: str = ""
    elements: list[Element] = field(default_factory=list)
    placeholders: dict[str, str] = field(default_factory=dict)
    entities: dict[str, str] = field(default_factory=dict)  # characters, and how they are written


@dataclass(frozen=True)
class MarkedDocument:
    """Texts that are translated by themselves, and what stands around them: `kept` has one more."""

    kept: list[str]
    texts: list[MarkedText]

    def join(self, translations: Sequence[str]) -> str:
        """Put translations of the texts between what stands around them, beside which white space is kept."""
        joined, last = self.kept[0], len(self.texts) - 1
        for number, (text, translation) in enumerate(zip(self.texts, translations, strict=True)):
            before, after = _margins(text.plain)
            joined += before * (number > 0) + translation + after * (number < last) + self.kept[number + 1]
        return joined


def _margins(plain: str) -> tuple[str, str]:
    """Return the spaces at the ends of a text; of line breaks a translation takes care itself."""
    bare = plain.strip()
    start = plain.find(bare) if bare else len(plain)
    before, after = plain[:start], plain[start + len(bare) :]
    return "" if "\n" in before else before, "" if "\n" in after else after


@dataclass(frozen=True)
class Lexeme:
    """A part of a text: what it is, how it is written, and the name of a tag or what an entity says."""

    what: Literal["text", "entity", "opening", "closing", "alone", "block", "placeholder"]
    written: str
    name: str = ""


def parse(text: str, kind: Kind) -> MarkedDocument:
    """Take tags and placeholders out of a text; malformed tags stand alone, and nothing is refused."""
    kept, texts, run = [""], list[MarkedText](), list[Lexeme]()
    stand_ins = stand_in_names(text)
    for lexeme in lexemes(text, kind):
        if lexeme.what == "block":
            texts.append(marked_text(run, stand_ins))
            kept.append(lexeme.written)
            run = []
        else:
            run.append(lexeme)
    return MarkedDocument([*kept, ""], [*texts, marked_text(run, stand_ins)])


def strip_markup(text: str, kind: Kind = "all") -> str:
    """Return a text without its tags, entities being the characters that they name; placeholders stay."""
    return " ".join(restore(each.plain, each.placeholders) for each in parse(text, kind).texts)


def stand_in_names(text: str) -> Iterator[str]:
    """Yield names such as X1, none of which stands in the text."""
    letter = next((each for each in LETTERS if re.search(rf"{each}[0-9]", text) is None), "")
    names = (f"{letter or LETTERS[0]}{number}" for number in count(1))
    return names if letter else (name for name in names if name not in text)


def stand_in_pattern(names: dict[str, str]) -> re.Pattern[str]:
    """Return what finds these names as words of their own."""
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(names) or '(?!)'})(?![A-Za-z0-9])")


def restore(text: str, placeholders: dict[str, str]) -> str:
    """Put placeholders back in the place of their names."""
    return stand_in_pattern(placeholders).sub(lambda match: placeholders[match[0]], text)


def lexemes(text: str, kind: Kind) -> list[Lexeme]:
    """Cut a text into tags, entities, placeholders and what is between them."""
    found = list(Lexer(text).lexemes()) if kind != "placeholders" else [Lexeme("text", text)]
    if kind == "tags":
        return found
    return [part for each in found for part in (_with_placeholders(each.written) if each.what == "text" else [each])]


_SMALL = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class Lexer:
    """Finds tags and entities in one text, which it reads about once."""

    def __init__(self, text: str):
        self.text = text
        self.small = text.translate(_SMALL)
        self.absent: set[str] = set()  # ends that were looked for in vain

    def lexemes(self) -> Iterator[Lexeme]:
        """Yield tags, entities and the text between them."""
        at = done = 0
        for sign in re.finditer("[<&]", self.text):
            at = sign.start()
            found = None if at < done else self._entity(at) if sign[0] == "&" else self._tag(at)
            if found is not None:
                yield Lexeme("text", self.text[done:at])
                yield found
                done = at + len(found.written)
        yield Lexeme("text", self.text[done:])

    def _entity(self, at: int) -> Lexeme | None:
        entity = ENTITY.match(self.text, at)
        if entity is None:
            return None
        said = html.unescape(entity[0])
        if said in {"", entity[0]} or ENTITY.fullmatch(said) is not None:
            return None
        return Lexeme("alone" if said.isspace() else "entity", entity[0], said)

    def _tag(self, at: int) -> Lexeme | None:
        stop = self._after(COMMENT_END, at) if self.text.startswith(COMMENT, at) else -1
        if stop >= 0:
            return Lexeme("alone", self.text[at:stop])
        tag = TAG.match(self.text, at)
        if tag is None:
            return None
        name, alone = (tag[2] or "").translate(_SMALL), tag[0].endswith("/>")
        if name in KEPT_WHOLE | SAID_AS_THEY_ARE and not tag[1] and not alone:
            stop = self._after(f"</{name}>", tag.end())
            if stop >= 0:
                return Lexeme("block" if name in KEPT_WHOLE else "placeholder", self.text[at:stop])
        if name in BLOCKS:
            return Lexeme("block", tag[0])
        if not name or name in EMPTY or alone:
            return Lexeme("alone", tag[0])
        return Lexeme("closing" if tag[1] else "opening", tag[0], name)

    def _after(self, end: str, at: int) -> int:
        """Return the place after the next such end, or -1."""
        found = -1 if end in self.absent else self.small.find(end, at)
        if found < 0:
            self.absent.add(end)
        return found + len(end) if found >= 0 else -1


def _with_placeholders(text: str) -> Iterator[Lexeme]:
    done = 0
    for match in PLACEHOLDER.finditer(text):
        if match.start() >= done:  # else it was joined to the one before
            start, stop = _widened(text, match.start(), match.end(), done)
            yield Lexeme("text", text[done:start])
            yield Lexeme("placeholder", text[start:stop])
            done = stop
    yield Lexeme("text", text[done:])


def _widened(text: str, start: int, stop: int, least: int) -> tuple[int, int]:
    """Return where the word begins and ends that a placeholder is part of, with placeholders that follow at once."""
    while start > least and (_WORDLIKE.match(text[start - 1]) or (start - 1 > least and _joins(text, start - 1))):
        start -= 1
    while stop < len(text):
        following = PLACEHOLDER.match(text, stop)
        if following is None and not _WORDLIKE.match(text[stop]) and not _joins(text, stop):
            break
        stop = stop + 1 if following is None else following.end()
    return start, stop


def _joins(text: str, at: int) -> bool:
    """Tell whether a sign joins what stands beside it to one word, as in file_{n}.txt."""
    beside = text[at - 1 : at], text[at + 1 : at + 2]
    return text[at] in _JOINING and all(each and (_WORDLIKE.match(each) or each in "{}%$") for each in beside)


def marked_text(run: list[Lexeme], stand_ins: Iterator[str]) -> MarkedText:
    """Return the plain text of some lexemes, and its elements: pairs that are nested, and whatever stands alone."""
    run = absorb_spaces(run)
    made, plain, length = MarkedText(), list[str](), 0
    closing_of = matching_tags(run)
    closing = set(closing_of.values())
    outer: list[Element] = []
    for index, lexeme in enumerate(run):
        said = lexeme.written if lexeme.what == "text" else ""
        if lexeme.what == "entity":
            said = lexeme.name
            made.entities |= {said: lexeme.written} if said in "&<>\"'" else {}
        elif lexeme.what == "placeholder":
            said = next(stand_ins)
            made.placeholders[said] = lexeme.written
        elif index in closing:
            outer[-1].closing, outer[-1].stop = lexeme.written, length
            outer.pop()
        elif lexeme.what != "text":
            element = Element(lexeme.written, length, length)
            (outer[-1].inner if outer else made.elements).append(element)
            outer += [element] if index in closing_of else []
            said = " " if element.is_space else ""
        plain.append(said)
        length += len(said)
    made.plain = "".join(plain)
    return made


def matching_tags(run: list[Lexeme]) -> dict[int, int]:
    """Return the closing tag of each opening one that has one: the nearest of its name that encloses no half pair."""
    open_: list[int] = []
    names: Counter[str] = Counter()
    pairs: dict[int, int] = {}
    for index, lexeme in enumerate(run):
        if lexeme.what == "opening" and len(open_) < DEEPEST:
            open_.append(index)
            names[lexeme.name] += 1
        elif lexeme.what == "closing" and names[lexeme.name]:
            while run[open_[-1]].name != lexeme.name:
                names[run[open_.pop()].name] -= 1
            names[lexeme.name] -= 1
            pairs[open_.pop()] = index
    return pairs


def absorb_spaces(run: list[Lexeme]) -> list[Lexeme]:
    """Where white space stands on both sides of a tag, let that within the pair, or behind one alone, be part of it."""
    run = [each for each in run if each.written]
    for index, lexeme in enumerate(run):
        before = run[index - 1] if index else Lexeme("text", " ")
        after = run[index + 1] if index + 1 < len(run) else Lexeme("text", " ")
        spaced = before.written[-1:].isspace() and after.written[:1].isspace()
        if lexeme.what in {"opening", "alone"} and spaced and index + 1 < len(run) and after.what == "text":
            bare = after.written.lstrip()
            run[index] = replace(lexeme, written=lexeme.written + after.written[: len(after.written) - len(bare)])
            run[index + 1] = replace(after, written=bare)
        elif lexeme.what == "closing" and spaced and index and before.what == "text":
            bare = before.written.rstrip()
            run[index] = replace(lexeme, written=before.written[len(bare) :] + lexeme.written)
            run[index - 1] = replace(before, written=bare)
    return run

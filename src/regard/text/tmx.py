"""Pairs from a translation memory (TMX)."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError, iterparse

from regard.config import DataSettings
from regard.text.pair import Pair, make_pair
from regard.text.stream import open_bytes

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
UNNAMED = (DataSettings.src_lang, DataSettings.tgt_lang)
# Inline elements that hold the code of another format, not words of the sentence.
CODES = {"bpt", "ept", "it", "ph", "ut"}


def read_tmx(source: str, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Reads unit after unit and forgets each; without names of languages the first two of a unit are taken."""
    with open_bytes(source) as stream:
        events = iterparse(stream, events=("start", "end"))  # pyright: ignore[reportArgumentType]
        try:
            for number, unit in enumerate(_units(events), start=1):
                where = f"{source}, unit {number}"
                yield make_pair(*_sides(_sentences(unit), src_lang, tgt_lang, where), where)
        except ParseError as error:
            raise ValueError(
                f"{source}, line {error.position[0]}: the file must be well-formed XML, {error}"
            ) from error


def _units(events: Iterator[tuple[str, Element]]) -> Iterator[Element]:
    body: Element | None = None
    for event, element in events:
        if event == "start" and _name(element) == "body":
            body = element
        elif event == "end" and _name(element) == "tu":
            yield element
            if body is not None:
                body.clear()  # a unit that was read is not kept


def _sentences(unit: Element) -> list[tuple[str, str]]:
    """Gives the languages and sentences of a unit."""
    found: list[tuple[str, str]] = []
    for variant in unit:
        if _name(variant) == "tuv":
            lang = variant.get(XML_LANG) or variant.get("lang") or ""
            found += [(lang.lower(), _words(segment)) for segment in variant if _name(segment) == "seg"]
    return found


def _sides(found: list[tuple[str, str]], src_lang: str, tgt_lang: str, where: str) -> tuple[str, str]:
    if (src_lang, tgt_lang) == UNNAMED:
        sentences = [words for _, words in found] + ["", ""]
        return sentences[0], sentences[1]
    sides = [next((words for lang, words in found if _is(lang, want)), None) for want in (src_lang, tgt_lang)]
    if sides == [None, None]:
        langs = ", ".join(lang or "none" for lang, _ in found)
        raise ValueError(
            f"{where}: a unit must have the languages of data.src_lang and data.tgt_lang, {src_lang} and {tgt_lang}, "
            f"got {langs or 'no sentences'}"
        )
    return sides[0] or "", sides[1] or ""


def _is(lang: str, want: str) -> bool:
    """Tells whether a tag such as zh-hans-cn or en_GB is of a language."""
    return lang.replace("_", "-").startswith(want.lower().replace("_", "-") + "-") or lang == want.lower()


def _words(segment: Element) -> str:
    inner = (("" if _name(child) in CODES else _words(child)) + (child.tail or "") for child in segment)
    return (segment.text or "") + "".join(inner)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]

"""The command translate, and how a model and its decoding settings are chosen on the command line."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import tee
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from regard import markup as markups
from regard.cli.options import AnyModel, AutoPrecision, Beam, Device, Json, SetDecode, Source, Target
from regard.config import DecodeSettings, choose, merge, parse_settings
from regard.data.files import read_good_lines, stdin_pauses
from regard.data.normalise import language_code
from regard.pipeline import load_translator
from regard.pipeline.glossary import Glossary
from regard.pipeline.translator import WINDOW, Translation, Translator
from regard.terminal import escape, message, open_output, progress_bar, to_json_line
from regard.toml import parse_override
from regard.zoo import HOME, peek, pick

INPUT = "File with one sentence per line; - is stdin."
SHORTLIST = "Restrict the output vocabulary to a lexical shortlist made by regard shortlist: faster, CPU only."
PAIRS = "Write translation<TAB>sentence: synthetic parallel text by back-translation."
TAG = "With --pairs: a tag in front of each translation, such as <bt>."
GLOSSARY = (
    "Terms and their translations: a file of lines term<TAB>translation|another<TAB>preferred; else they are forced."
)
REVERSE = "With --glossary: its translations are the terms, and its terms their translations."
MARKUP = "Keep markup: tags, placeholders such as {name} and %s, or all."
Shortlist = Annotated[Path | None, Option(help=SHORTLIST)]
GlossaryFile = Annotated[Path | None, Option("--glossary", help=GLOSSARY)]
MarkupKind = Annotated[str | None, Option("--markup", help=MARKUP, show_default="none: all is text")]


def translate(
    text: Annotated[list[str] | None, Argument(help="Sentences; without any, lines are read from --input.")] = None,
    model: AnyModel = None,
    src: Source = None,
    tgt: Target = None,
    input_: Annotated[str, Option("--input", "-i", help=INPUT)] = "-",
    out: Annotated[Path | None, Option("--out", "-o", help="Write to this file instead of stdout.")] = None,
    set_: SetDecode = None,
    beam: Beam = None,
    n_best: Annotated[int | None, Option(help="Number of hypotheses printed per sentence.", show_default="1")] = None,
    precision: AutoPrecision = "auto",
    device: Device = "auto",
    shortlist: Shortlist = None,
    glossary: GlossaryFile = None,
    reverse: Annotated[bool, Option("--reverse", help=REVERSE)] = False,
    markup: MarkupKind = None,
    pairs: Annotated[bool, Option("--pairs", help=PAIRS)] = False,
    tag: Annotated[str, Option(help=TAG)] = "",
    json_: Json = False,
) -> None:
    check_rows(json_, pairs, tag)
    lines = iter(text) if text else read_good_lines(input_, _report)
    folder, lines = (model, lines) if model is not None else pick_model(src, tgt, lines)
    translator = load_translator(folder, precision, device_for(device, shortlist), shortlist, src, tgt)
    check_languages(translator, src, tgt)
    decode = decode_settings(translator.settings, beam, n_best, set_)
    terms = read_glossary(glossary, translator, reverse)
    stream = choose_stream(translator, decode, terms, markup)
    pauses = stdin_pauses if input_ == "-" and not text else _never
    if pairs:
        lines, originals = tee(lines)
        rows = back_translations(_translations(stream, lines, pauses), originals, tag)
    else:
        translations = _translations(stream, lines, pauses)
        rows = (to_json_line(each) if json_ else format_line(each, decode.n_best) for each in translations)
    with open_output(out) as write:
        for row in rows:
            write(row)


def _report(problem: str) -> None:
    message(f"[yellow]{escape(problem)}; its translation is left empty[/]")


def _never() -> bool:
    return False


Stream = Callable[[Iterable[str]], Iterator[Translation]]


def choose_stream(
    translator: Translator, decode: DecodeSettings, glossary: Glossary | None, kind: str | None
) -> Stream:
    """Return what translates lines: with their tags, or as plain text."""
    if kind is None:
        return lambda lines: translator.stream(lines, decode, glossary=glossary)
    choose(markups.KINDS, kind, "kind of markup")
    return lambda lines: markups.stream_marked(translator, lines, decode, kind, glossary)


def read_glossary(path: Path | None, translator: Translator, reverse: bool) -> Glossary | None:
    """Read a glossary for a model, turned round or not, where there is one."""
    if reverse and path is None:
        raise ValueError("--reverse turns a glossary round, and there is none: add --glossary")
    return None if path is None else Glossary.read(path, translator.tokenizer, reverse)


def check_rows(json_: bool, pairs: bool, tag: str) -> None:
    """Raise ValueError for ways to print that exclude each other."""
    if json_ and pairs:
        raise ValueError("--json and --pairs exclude each other: leave one out")
    if tag and not pairs:
        raise ValueError(f"--tag goes before the translations of --pairs, got {tag!r} without: add --pairs")


def _translations(stream: Stream, lines: Iterable[str], pauses: Callable[[], bool]) -> Iterator[Translation]:
    found = (each for window in windows(lines, pauses) for each in stream(window))
    for number, each in enumerate(progress_bar(found, None, "translating"), start=1):
        if each.warning is not None:
            message(f"[yellow]line {number}: {each.warning}[/]")
        yield each


def windows(lines: Iterable[str], pauses: Callable[[], bool]) -> Iterator[list[str]]:
    """Yield lines as many at a time as are sorted into batches, or as have come when the input pauses."""
    rest = iter(lines)
    for line in rest:
        window = [line]
        while len(window) < WINDOW and not pauses() and (more := next(rest, None)) is not None:
            window.append(more)
        yield window


def pick_model(src: str | None, tgt: str | None, lines: Iterable[str], home: Path = HOME) -> tuple[Path, Iterator[str]]:
    """Return the bundled model for these languages, and the lines; the script of the first ones names the source."""
    seen, lines = peek(lines)
    name = pick(src, tgt, seen, home)
    message(f"[dim]translating with the bundled model {name}[/]")
    return home / name, lines


def device_for(device: str, shortlist: Path | None) -> str:
    """Leave `auto` to the machine, but for a shortlist, which a CPU alone can use."""
    return "cpu" if device == "auto" and shortlist is not None else device


def check_languages(translator: Translator, src: str | None, tgt: str | None) -> None:
    """Raise ValueError where --from or --to name another language than the model's."""
    for option, asked, own in (("--from", src, translator.src_lang), ("--to", tgt, translator.tgt_lang)):
        if asked is not None and language_code(asked) != language_code(own):
            raise ValueError(f"{option} must be the model's own language, {own}, got {asked}: leave it out")


def decode_settings(
    default: DecodeSettings, beam: int | None, n_best: int | None, set_: list[str] | None
) -> DecodeSettings:
    """Return the model's decoding settings with what the command line changes."""
    named: dict[str, Any] = {key: value for key, value in (("beam", beam), ("n_best", n_best)) if value is not None}
    if beam == 1:
        named["method"] = "greedy"
    own = {key: value for key, value in asdict(default).items() if value is not None}
    return parse_settings(DecodeSettings, merge(own, named, *(parse_override(text) for text in set_ or ())))


def format_line(translation: Translation, n_best: int) -> str:
    """Return the text, or for n-best lists a line with score and text for every hypothesis."""
    if n_best == 1:
        return translation.text
    return "\n".join(f"{each.score:.4f}\t{each.text}" for each in translation.alternatives)


def back_translations(translations: Iterable[Translation], originals: Iterable[str], tag: str) -> Iterator[str]:
    """Yield each hypothesis as the source of its sentence; empty ones are left out."""
    for translation, original in zip(translations, originals, strict=True):
        for each in translation.alternatives:
            if each.text:
                yield " ".join(f"{tag} {each.text}".split()) + "\t" + " ".join(original.split())

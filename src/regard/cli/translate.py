"""Translate, evaluate, shortlist."""

from collections.abc import Iterable, Iterator
from itertools import islice, tee
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import Device, From, Json, Precision, Reverse, SetDecode, To, app
from regard.plot.terminal import as_json, escaped, print_json, print_tables, say, with_bar, writing
from regard.zoo import HOME

MODEL = "A bundled model's name (see regard models), a run's folder, or the model folder inside it."
BEAM = "Hypotheses kept; 1 is greedy."
SHORTLIST = "Look through the words alone that this file, made by regard shortlist, suggests: quicker, on a CPU."


@app.command()
def translate(
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences; without any, lines are read from --input.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=MODEL, show_default="by the text")] = None,
    src: From = None,
    tgt: To = None,
    input_: Annotated[str, typer.Option("--input", "-i", help="A file with one sentence a line; - is stdin.")] = "-",
    output: Annotated[Path | None, typer.Option("--output", "-O", help="Write here instead of to stdout.")] = None,
    set_: SetDecode = None,
    beam: Annotated[int | None, typer.Option(help=BEAM)] = None,
    n_best: Annotated[int | None, typer.Option(help="Translations given for each sentence.")] = None,
    precision: Precision = "float32",
    device: Device = "cpu",
    shortlist: Annotated[Path | None, typer.Option(help=SHORTLIST)] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Write translation<TAB>sentence: a corpus by back-translation.")
    ] = False,
    tag: Annotated[str, typer.Option(help="With --pairs: a word before each translation, such as <bt>.")] = "",
    json_: Json = False,
) -> None:
    """Translates sentences, files and pipes, line by line."""
    if json_ and pairs:
        raise ValueError("--json and --pairs exclude each other: leave one out")
    if tag and not pairs:
        raise ValueError(f"--tag goes before the translations of --pairs, got {tag!r} without: add --pairs")
    from regard.data.files import read_lines

    lines = iter(text) if text else read_lines(input_)
    folder, lines = (model, lines) if model is not None else picked(src, tgt, lines)
    from regard.pipeline import load_translator

    translator = load_translator(folder, precision, device, shortlist)
    check_languages(translator, src, tgt)
    chosen = decoding(translator.settings, beam, n_best, set_)
    if pairs:
        lines, originals = tee(lines)
        made = _pairs(_behind_bar(translator, lines, chosen), originals, tag)
    else:
        made = (_as_line(found, chosen.n_best, json_) for found in _behind_bar(translator, lines, chosen))
    with writing(output) as write:
        for line in made:
            write(line)


@app.command()
def evaluate(
    data: Annotated[list[str], typer.Option(help="Parallel text with the references.")],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL)],
    set_: SetDecode = None,
    beam: Annotated[int | None, typer.Option(help=BEAM)] = None,
    precision: Precision = "float32",
    device: Device = "cpu",
    shortlist: Annotated[Path | None, typer.Option(help=SHORTLIST)] = None,
    reverse: Reverse = False,
    json_: Json = False,
) -> None:
    """Translates the source side of parallel text and scores it: BLEU and chrF by sacreBLEU, with signatures."""
    from regard.pipeline import load_translator

    translator = load_translator(model, precision, device, shortlist)
    result = scored(translator, data, reverse, decoding(translator.settings, beam, None, set_))
    if json_:
        return print_json(result)
    from regard.plot.terminal import result_table

    print_tables(result_table(result))


def scored(translator: Any, data: list[str], reverse: bool, chosen: Any) -> Any:
    """Translates one side of parallel text behind a bar, and scores it against the other."""
    from regard.data.formats import read_pairs
    from regard.score import score

    turn = -1 if reverse else 1
    pairs = list(read_pairs(data, *(translator.src_lang, translator.tgt_lang)[::turn]))
    texts, references = ([pair.src for pair in pairs], [pair.tgt for pair in pairs])[::turn]
    outputs = [found.text for found in with_bar(translator.stream(texts, chosen), len(texts), "translating")]
    return score(outputs, references, translator.tgt_lang)


def _behind_bar(translator: Any, lines: Iterable[str], chosen: Any) -> Iterable[Any]:
    return with_bar(translator.stream(lines, chosen), None, "translating")


def picked(src: str | None, tgt: str | None, lines: Iterable[str], home: Path = HOME) -> tuple[Path, Iterator[str]]:
    """Gives the bundled model that suits, and the lines as they were."""
    from regard.zoo import peek, pick

    seen, lines = peek(lines)
    name = pick(src, tgt, seen, home)
    say(f"[dim]translating with the bundled model {name}[/]")
    return home / name, lines


def check_languages(translator: Any, src: str | None, tgt: str | None) -> None:
    """Refuses a model that is said to know another language than it does."""
    from regard.data.normalise import language_code

    known = {"--from": (src, translator.src_lang), "--to": (tgt, translator.tgt_lang)}
    for option, (said, found) in known.items():
        if said is not None and language_code(said) != language_code(found):
            raise ValueError(f"the model's own language must be meant by {option}, {found}, got {said}: leave it out")


def decoding(default: Any, beam: int | None, n_best: int | None, set_: list[str] | None) -> Any:
    """Gives decoding settings: the model's own, with what the command line says otherwise."""
    from dataclasses import asdict

    from regard.config import DecodeSettings, merge, parse_override, parse_settings

    named: dict[str, Any] = {key: value for key, value in (("beam", beam), ("n_best", n_best)) if value is not None}
    if beam == 1:
        named["method"] = "greedy"
    given = {key: value for key, value in asdict(default).items() if value is not None}
    return parse_settings(DecodeSettings, merge(given, named, *(parse_override(text) for text in set_ or ())))


def _as_line(found: Any, n_best: int, json_: bool) -> str:
    if json_:
        return as_json(found)
    if n_best == 1:
        return found.text
    return "\n".join(f"{other.score:.4f}\t{other.text}" for other in found.alternatives)


def _pairs(found: Iterable[Any], originals: Iterable[str], tag: str) -> Iterator[str]:
    """Gives each translation as a source with the sentence as its target; empty ones teach nothing."""
    for translation, original in zip(found, originals, strict=True):
        for each in translation.alternatives:
            if each.text:
                yield f"{tag} {each.text}".strip() + "\t" + " ".join(original.split())


DATA = "Parallel text, such as the model was taught with. May be repeated."
MOST = "Pairs that are read, from the first on: 100,000 short ones take six seconds and 0.7 GiB."


@app.command()
def shortlist(
    data: Annotated[list[str], typer.Option(help=DATA)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, such as zh-en.shortlist.")],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL)],
    frequent: Annotated[int, typer.Option(min=0, help="Target pieces that may always be said, the commonest.")] = 500,
    each: Annotated[int, typer.Option(min=1, help="Target pieces that each source piece suggests.")] = 50,
    most: Annotated[int, typer.Option(min=1, help=MOST)] = 200_000,
    reverse: Reverse = False,
) -> None:
    """Learns which words a source suggests, so that translate --shortlist need not look through all of them."""
    if not out.parent.is_dir():
        raise ValueError(f"the folder for {out.name!r} does not exist: {out.parent}")
    from regard.checkpoint.folder import load_model
    from regard.data.formats import read_pairs
    from regard.pipeline.shortlist import learn_shortlist
    from regard.zoo import find_model

    checkpoint = load_model(find_model(model))
    languages = (checkpoint.settings.data.src_lang, checkpoint.settings.data.tgt_lang)
    turn = -1 if reverse else 1
    read = islice(read_pairs(data, *languages[::turn]), most)
    pairs = [(pair.tgt, pair.src) if reverse else (pair.src, pair.tgt) for pair in read]
    learned = learn_shortlist(checkpoint.tokenizer, pairs, frequent, each)
    learned.save(out)
    known = f"{int((learned.table[:, 0] >= 0).sum()):,} source pieces, learned from {len(pairs):,} pairs"
    say(f"[dim]shortlist of {known}, saved as[/] {escaped(str(out))}")

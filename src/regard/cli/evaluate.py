"""Commands that read parallel text with a model: evaluate, shortlist; reading such text."""

from itertools import islice
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Option

from regard.checkpoint.weights import load_model
from regard.cli.options import Beam, Device, Json, Model, Precision, Reverse, SetDecode
from regard.cli.translate import Shortlist, decode_settings, device_for
from regard.config import DecodeSettings
from regard.data.formats import read_pairs
from regard.pipeline import load_translator
from regard.pipeline.shortlist import learn_shortlist
from regard.pipeline.translator import Translator
from regard.score import Scores, score
from regard.terminal import QUIET, escape, message, print_json, print_tables, progress_bar
from regard.zoo import find_model, pick

DATA = "Parallel text, ideally what the model was trained on. May be repeated."
LIMIT = "Read at most this many sentence pairs; 100,000 short ones take six seconds and 0.7 GiB."
FREQUENT = "Always allow this many of the most frequent target tokens."
DEFAULT_LANGUAGES = ("zh", "en")  # of a format that names them, where no model does


def evaluate(
    data: Annotated[list[str], Option(help="Parallel text: sources and references.")],
    model: Model,
    set_: SetDecode = None,
    beam: Beam = None,
    precision: Precision = "float32",
    device: Device = "auto",
    shortlist: Shortlist = None,
    reverse: Reverse = False,
    json_: Json = False,
) -> None:
    translator = load_translator(model, precision, device_for(device, shortlist), shortlist)
    scores = score_translations(translator, data, reverse, decode_settings(translator.settings, beam, None, set_))
    print_json(scores) if json_ else print_tables(scores_table(scores))


def shortlist(
    data: Annotated[list[str], Option(help=DATA)],
    out: Annotated[Path, Option("--out", "-o", help="File to write, such as zh-en.shortlist.")],
    model: Model,
    frequent: Annotated[int, Option(min=0, help=FREQUENT)] = 500,
    each: Annotated[int, Option(min=1, help="Target tokens allowed per source token.")] = 50,
    limit: Annotated[int, Option(min=1, help=LIMIT)] = 200_000,
    reverse: Reverse = False,
) -> None:
    if not out.parent.is_dir():
        raise ValueError(f"the folder for {out.name!r} does not exist: {out.parent}")
    checkpoint = load_model(find_model(model))
    languages = (checkpoint.settings.data.src_lang, checkpoint.settings.data.tgt_lang)
    pairs = read_sides(data, languages, reverse, limit)
    learned = learn_shortlist(checkpoint.tokenizer, pairs, frequent, each)
    learned.save(out)
    known = f"{int((learned.table[:, 0] >= 0).sum()):,} source tokens, learned from {len(pairs):,} pairs"
    message(f"[dim]shortlist of {known}, saved as[/] {escape(str(out))}")


def read_sides(
    data: list[str], languages: tuple[str, str], reverse: bool = False, limit: int | None = None
) -> list[tuple[str, str]]:
    """Read pairs of (source, target); with `reverse` the text's second side is the source."""
    turn = -1 if reverse else 1
    pairs = islice(read_pairs(data, *languages[::turn]), limit)
    return [(pair.tgt, pair.src) if reverse else (pair.src, pair.tgt) for pair in pairs]


def read_with_model(
    model: str | None, data: list[str], device: str, reverse: bool = False, limit: int | None = None
) -> tuple[str, Translator, list[tuple[str, str]]]:
    """Open a model, or the bundled one for the text's language; return its name, the model and the pairs."""
    if model is not None:
        translator = load_translator(model, device=device)
        return model, translator, read_sides(data, (translator.src_lang, translator.tgt_lang), reverse, limit)
    pairs = read_sides(data, DEFAULT_LANGUAGES, reverse, limit)
    name = pick(None, None, [src for src, _ in pairs[:100]])
    message(f"[dim]reading with the bundled model {name}[/]")
    return name, load_translator(name, device=device), pairs


def score_translations(translator: Translator, data: list[str], reverse: bool, decode: DecodeSettings) -> Scores:
    """Translate one side of parallel text behind a progress bar, and score it against the other."""
    pairs = read_sides(data, (translator.src_lang, translator.tgt_lang), reverse)
    sources, references = [src for src, _ in pairs], [tgt for _, tgt in pairs]
    translations = progress_bar(translator.stream(sources, decode), len(sources), "translating")
    return score([each.text for each in translations], references, translator.tgt_lang)


def scores_table(scores: Scores) -> Table:
    """List scores with their signatures."""
    table = Table(title=f"{scores.n:,} sentences", **QUIET)
    for column in ("score", "value", "signature"):
        table.add_column(column, justify="right" if column == "value" else "left")
    table.add_row("BLEU", f"{scores.bleu:.2f}", scores.bleu_signature)
    table.add_row("chrF", f"{scores.chrf:.2f}", scores.chrf_signature)
    return table

"""The command export: a model in fewer bytes, or in the format of another program."""

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from regard.atomic import atomic_file
from regard.checkpoint import SCORES, check_out, describe, read_json, write_json
from regard.checkpoint.weights import Form, copy_model
from regard.cli.evaluate import read_sides, translate_all
from regard.cli.options import ModelArgument, Reverse
from regard.config import DecodeSettings, choose
from regard.exchange.outgoing import FORMATS, exported_folder, open_outgoing
from regard.extras import needed_by
from regard.pipeline import load_translator
from regard.pipeline.translator import Translator
from regard.score import Scores, score
from regard.terminal import escape, message
from regard.zoo import find_model, write_card

OURS = "regard"
TO = f"Format: {OURS}, or that of another program, {', '.join(FORMATS)}."
PRECISION = "float32, bfloat16 or int8: 4, 2 or 1 byte per weight."
DEFAULT_PRECISION = "int8; float32 for another program"
TEST = "Parallel text on which the new model is scored; may be repeated, the first is its main score."
SHARD = "Split the weights into files of at most this many MiB."


def export(
    model: ModelArgument,
    out: Annotated[Path, Option("--out", "-o", help="Folder for the new model.")],
    to: Annotated[str, Option(help=TO)] = OURS,
    precision: Annotated[str | None, Option(help=PRECISION, show_default=DEFAULT_PRECISION)] = None,
    shard_mib: Annotated[float | None, Option(help=SHARD, show_default="one file")] = None,
    test: Annotated[list[str] | None, Option(help=TEST)] = None,
    reverse: Reverse = False,
    made_by: Annotated[str | None, Option(help="Write a model card that names this training command.")] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the model in the folder.")] = False,
) -> None:
    choose(dict.fromkeys((OURS, *FORMATS)), to, "format")
    if to != OURS:
        own = {"--shard-mib": shard_mib, "--test": test, "--made-by": made_by}
        refuse_own([name for name, given in own.items() if given is not None], to)
        return export_to(to, find_model(model), out, precision or "float32", overwrite)
    check_out(out, overwrite)
    copy_model(find_model(model), out, Form(precision or "int8", shard_mib))
    if test:
        save_scores(out, test, reverse)
    if made_by is not None:
        for missing in write_card(out, made_by):
            message(f"[yellow]the card still lacks {escape(missing)}[/]")
    new = describe(out)
    size = f"{new['bytes'] / 2**20:.1f} MiB in {new['shards']} file{'s' * (new['shards'] > 1)}"
    message(f"{new['parameters']:,} parameters as {new['precision']}, {size}, in {escape(str(out))}")


def refuse_own(given: list[str], to: str) -> None:
    """Raise ValueError for options of our own format."""
    if given:
        way_out = "export with them and without --to first, then export that folder"
        raise ValueError(f"{' and '.join(given)} must go without --to, got --to {to}: {way_out}")


def export_to(to: str, model: Path, out: Path, precision: str, overwrite: bool) -> None:
    """Write a model in the format of another program, and say how it is run there."""
    with needed_by(f"regard export --to {to}"):
        write = getattr(import_module(f"regard.exchange.to_{to}"), f"write_{to}")
    outgoing = open_outgoing(model, to, precision)
    with exported_folder(out, overwrite, outgoing, to) as part:
        missing = write(outgoing, part, out.name, precision)
    for each in missing:
        message(f"[yellow]the card still lacks {escape(each)}[/]")
    size = sum(each.stat().st_size for each in out.iterdir()) / 2**20
    usage = escape(str(out / "README.md"))
    message(f"{FORMATS[to].title} in {precision}, {size:.1f} MiB, in {escape(str(out))}; {usage} shows how to run it")


def save_scores(out: Path, tests: list[str], reverse: bool) -> None:
    """Score a model as it lies on disk on each text by itself, and add the results to its scores."""
    translator = load_translator(out, "float32")
    how = {"precision": "float32", "method": translator.settings.method, "beam": translator.settings.beam}
    results: list[dict[str, Any]] = []
    for test in tests:
        name = ", ".join(f"{Path(each).parent.name}/{Path(each).name}" for each in test.split(","))
        found = asdict(score_translations(translator, [test], reverse, translator.settings))
        results.append({**found, "on": name, **how})
    with atomic_file(out / SCORES) as draft:
        write_json(draft, {**read_json(out / SCORES), "test": results[0], "tests": results})


def score_translations(translator: Translator, data: list[str], reverse: bool, decode: DecodeSettings) -> Scores:
    """Translate one side of parallel text, and score it against the other."""
    pairs = read_sides(data, (translator.src_lang, translator.tgt_lang), reverse)
    outputs = translate_all(translator, [src for src, _ in pairs], decode)
    return score(outputs, [tgt for _, tgt in pairs], translator.tgt_lang)

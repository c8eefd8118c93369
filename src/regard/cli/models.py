"""Commands about models themselves: models, info, export."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from typer import Argument, Option

from regard.atomic import atomic_file
from regard.checkpoint import SCORES, check_out, describe, read_json, write_json
from regard.checkpoint.weights import Form, copy_model
from regard.cli.evaluate import score_translations
from regard.cli.options import Json, ModelArgument, Reverse
from regard.pipeline import load_translator
from regard.terminal import QUIET, escape, message, print_json, print_tables
from regard.zoo import Entry, catalogue, entry, find_model, named, read_card, write_card

PRECISION = "float32, bfloat16 or int8: 4, 2 or 1 byte per weight."
SHARD = "Split the weights into files of at most this many MiB."


def models(
    name: Annotated[str | None, Argument(help="Bundled model whose card to show.")] = None, json_: Json = False
) -> None:
    if name is not None:
        card = read_card(named(name))
        return print_json({"model": entry(name), "card": card}) if json_ else Console().print(Markdown(card))
    entries = catalogue()
    if json_:
        return print_json(entries)
    if not entries:
        return message("no models come with this copy of regard; regard train makes one")
    print_tables(models_table(entries))


def info(model: ModelArgument, json_: Json = False) -> None:
    description = describe(find_model(model))
    print_json(description) if json_ else print_tables(info_table(description))


def export(
    model: ModelArgument,
    out: Annotated[Path, Option("--out", "-o", help="Folder for the new model.")],
    precision: Annotated[str, Option(help=PRECISION)] = "int8",
    shard_mib: Annotated[float | None, Option(help=SHARD, show_default="one file")] = None,
    test: Annotated[list[str] | None, Option(help="Parallel text on which the new model is scored.")] = None,
    reverse: Reverse = False,
    made_by: Annotated[str | None, Option(help="Write a model card that names this training command.")] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the model in the folder.")] = False,
) -> None:
    check_out(out, overwrite)
    copy_model(find_model(model), out, Form(precision, shard_mib))
    if test:
        save_scores(out, test, reverse)
    if made_by is not None:
        for missing in write_card(out, made_by):
            message(f"[yellow]the card still lacks {escape(missing)}[/]")
    new = describe(out)
    size = f"{new['bytes'] / 2**20:.1f} MiB in {new['shards']} file{'s' * (new['shards'] > 1)}"
    message(f"{new['parameters']:,} parameters as {new['precision']}, {size}, in {escape(str(out))}")


def save_scores(out: Path, test: list[str], reverse: bool) -> None:
    """Score a model as it lies on disk, and add the result to its scores."""
    translator = load_translator(out)
    result: dict[str, Any] = asdict(score_translations(translator, test, reverse, translator.settings))
    names = ", ".join(f"{Path(each).parent.name}/{Path(each).name}" for each in test)
    with atomic_file(out / SCORES) as draft:
        write_json(draft, {**read_json(out / SCORES), "test": {**result, "on": names}})


def info_table(description: dict[str, Any]) -> Table:
    """List a model's size, vocabulary, settings and scores."""
    table = Table(title="Model", show_header=False, **QUIET)
    shards = description["shards"]
    form = f"{description['precision']}, {description['bytes'] / 2**20:.1f} MiB in {shards} file{'s' * (shards > 1)}"
    table.add_row("parameters", f"{description['parameters']:,} as {form}")
    vocabulary = description["vocabulary"]
    table.add_row("vocabulary", f"{vocabulary['src']:,} source, {vocabulary['tgt']:,} target tokens")
    for name in ("data", "text", "model", "decode"):
        for key, value in description["settings"][name].items():
            table.add_row(f"{name}.{key}", str(value))
    for name, value in description["scores"].items():
        table.add_row(f"scores.{name}", str(value))
    return table


def models_table(entries: list[Entry]) -> Table:
    """List the bundled models, and below them their licences."""
    licences = "\n".join(f"{each.name}: {each.licence or 'no licence is named'}" for each in entries)
    table = Table(title="Bundled models", caption=f"Licences\n{licences}", **QUIET)
    for column in ("name", "from", "to", "family", "parameters", "MiB", "BLEU"):
        right = column in {"parameters", "MiB", "BLEU"}
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    for each in entries:
        bleu = "–" if each.bleu is None else f"{each.bleu:.1f} ({each.measured_on})"
        sizes = f"{each.parameters:,}", f"{each.mib:.1f}", bleu
        table.add_row(each.name, each.src_lang, each.tgt_lang, each.family, *sizes)
    return table

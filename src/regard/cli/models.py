"""Commands about models themselves: models, info."""

from typing import Annotated, Any

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from typer import Argument, Option

from regard.checkpoint import describe
from regard.cli.native import show_system
from regard.cli.options import MODEL, Json
from regard.terminal import QUIET, message, print_json, print_tables
from regard.zoo import ZOO, Entry, catalogue, entry, find_model, named, read_card


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


def info(
    model: Annotated[str | None, Argument(help=MODEL)] = None,
    system: Annotated[bool, Option("--system", help="Engine, instructions and threads of this machine.")] = False,
    json_: Json = False,
) -> None:
    if system == (model is not None):
        given = f"got {model} with --system" if model is not None else "got neither"
        raise ValueError(f"info is of one model or of the --system, {given}: name a model, such as {next(iter(ZOO))}")
    if model is None:
        return show_system(json_)
    description = describe(find_model(model))
    print_json(description) if json_ else print_tables(info_table(description))


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

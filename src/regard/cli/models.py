"""The commands about models as such: models, info, export."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import Json, Reverse, app
from regard.plot.terminal import escaped, print_json, print_markdown, print_tables, say


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="A bundled model, to read its card.")] = None,
    json_: Json = False,
) -> None:
    """Lists the models that come with the package, or shows the card of one."""
    from regard.zoo import catalogue, entry, named
    from regard.zoo.card import read_card

    if name is not None:
        card = read_card(named(name))
        return print_json({"model": entry(name), "card": card}) if json_ else print_markdown(card)
    found = catalogue()
    if json_:
        return print_json(found)
    if not found:
        return say("no models come with this copy of regard; regard train makes one")
    from regard.plot.terminal import models_table

    print_tables(models_table(found))


@app.command()
def info(
    model: Annotated[str, typer.Argument(help="A bundled model's name, a run's folder, or a model folder.")],
    json_: Json = False,
) -> None:
    """Shows what a model is: sizes, parts, words, scores."""
    from regard.checkpoint import describe
    from regard.zoo import find_model

    found = describe(find_model(model))
    if json_:
        return print_json(found)
    from regard.plot.terminal import info_table

    print_tables(info_table(found))


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A run's folder, a model folder, or a bundled model's name.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new model folder.")],
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or int8: 4, 2 or 1 byte a number.")] = "int8",
    shard_mib: Annotated[float | None, typer.Option(help="Largest file in MiB.", show_default="one file")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Parallel text that scores the new model.")] = None,
    reverse: Reverse = False,
    made_by: Annotated[str | None, typer.Option(help="Write a card that names this command.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")] = False,
) -> None:
    """Writes a model anew in fewer bytes, or in files of a limited size, ready to be given away."""
    if out.exists() and not overwrite:
        raise ValueError(f"{out}: there is something here already: --overwrite replaces it")
    from regard.checkpoint import describe
    from regard.checkpoint.folder import copy_model
    from regard.checkpoint.weights import Form
    from regard.zoo import find_model

    copy_model(find_model(model), out, Form(precision, shard_mib))
    if test:
        _keep_scores(out, test, reverse)
    if made_by is not None:
        from regard.zoo.card import write_card

        for missing in write_card(out, made_by):
            say(f"[yellow]the card still lacks {escaped(missing)}[/]")
    found = describe(out)
    size = f"{found['bytes'] / 2**20:.1f} MiB in {found['shards']} file{'s' * (found['shards'] > 1)}"
    say(f"{found['parameters']:,} parameters as {found['precision']}, {size}, in {escaped(str(out))}")


def _keep_scores(out: Path, test: list[str], reverse: bool) -> None:
    """Scores a model as it lies on disk, and writes the result beside it."""
    from dataclasses import asdict

    from regard.atomic import atomic_file
    from regard.checkpoint import SCORES, read_json, write_json
    from regard.cli.translate import scored
    from regard.pipeline import load

    translator = load(out)
    result: dict[str, Any] = asdict(scored(translator, test, reverse, translator.settings))
    names = ", ".join(f"{Path(each).parent.name}/{Path(each).name}" for each in test)
    with atomic_file(out / SCORES) as draft:
        write_json(draft, {**read_json(out / SCORES), "test": {**result, "on": names}})

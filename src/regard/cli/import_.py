"""The command import: a translation model of another program becomes one of ours."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.checkpoint import describe
from regard.cli.options import Json
from regard.foreign import fetch, is_foreign, is_hub_name
from regard.foreign.incoming import read_incoming, write_incoming
from regard.terminal import escape, message, print_json

SOURCE = "Folder of a model of Hugging Face's Transformers, or a name on the hub such as hf:Helsinki-NLP/opus-mt-zh-en."
FROM = "Language that the model reads, where its folder does not name it."
TO = "Language that it writes; of a model that writes several, the one that is meant."


def import_(
    source: Annotated[str, Argument(help=SOURCE)],
    out: Annotated[Path, Option("--out", "-o", help="Folder for the model.")],
    src: Annotated[str | None, Option("--from", help=FROM)] = None,
    tgt: Annotated[str | None, Option("--to", help=TO)] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the model in the folder.")] = False,
    json_: Json = False,
) -> None:
    folder = find_source(source)
    model = read_incoming(folder, src, tgt, strict=True)
    write_incoming(model, out, overwrite)
    if json_:
        return print_json({"notes": model.notes, **describe(out)})
    for note in model.notes:
        message(f"[yellow]not taken over: {escape(note)}[/]")
    made = model.settings
    n = sum(array.size for array in model.arrays.values())
    languages = f"{made.data.src_lang} → {made.data.tgt_lang}"
    message(f"{model.title}, {n:,} parameters, {escape(languages)}, in {escape(str(out))}")


def find_source(source: str) -> Path:
    """Return the folder of a model of another program; raise ValueError for what is none."""
    folder = Path(source)
    if not folder.exists() and (is_hub_name(source) or is_hub_name(f"hf:{source}")):
        return fetch(source if is_hub_name(source) else f"hf:{source}")
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise ValueError(f"{source}: a source must be a folder of a model of Transformers, got {what}: name another")
    if not is_foreign(folder):
        rule = "must be a folder of a model of Transformers, with a model_type in its config.json"
        raise ValueError(f"{source}: a source {rule}, got another: a model of ours needs no import")
    return folder

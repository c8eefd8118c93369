"""The command that learns which words a source suggests: shortlist."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.app import Reverse, app
from regard.cli.translate import MODEL
from regard.plot.terminal import escaped, say

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
    from regard.checkpoint import load_model
    from regard.decode.shortlist import learn_shortlist
    from regard.text.corpus import read_pairs
    from regard.zoo.find import find_model

    checkpoint = load_model(find_model(model))
    languages = (checkpoint.settings.data.src_lang, checkpoint.settings.data.tgt_lang)
    turn = -1 if reverse else 1
    read = islice(read_pairs(data, *languages[::turn]), most)
    pairs = [(pair.tgt, pair.src) if reverse else (pair.src, pair.tgt) for pair in read]
    learned = learn_shortlist(checkpoint.tokenizer, pairs, frequent, each)
    learned.save(out)
    known = f"{int((learned.table[:, 0] >= 0).sum()):,} source pieces, learned from {len(pairs):,} pairs"
    say(f"[dim]shortlist of {known}, saved as[/] {escaped(str(out))}")

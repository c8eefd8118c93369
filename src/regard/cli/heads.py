"""The command that reports on a model's heads: heads."""

from typing import Annotated

import typer

from regard.cli.app import Device, Json, Out, Reverse, app
from regard.cli.parallel import read_with
from regard.cli.studies import check_out, keep_figure
from regard.cli.translate import MODEL
from regard.plot.terminal import print_json, print_tables, say, with_bar

SORT = "loss, bleu, entropy, spread, offset, diagonal, previous, next, first, end, punctuation, kind, layer or head."


@app.command()
def heads(
    data: Annotated[list[str], typer.Option(help="Parallel text on which heads are measured.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help=MODEL, show_default="by the text")] = None,
    sentences: Annotated[int, typer.Option(min=1, help="Pairs that are read, from the first on.")] = 200,
    bleu: Annotated[bool, typer.Option("--bleu", help="Also translate without each head: slow.")] = False,
    sort: Annotated[str, typer.Option(help=SORT)] = "loss",
    reverse: Reverse = False,
    device: Device = "cpu",
    out: Out = None,
    json_: Json = False,
) -> None:
    """Where each head looks, and what is lost without it: loss, and with --bleu the translations."""
    from regard.config import choose
    from regard.trace.heads import ORDERS, report_heads

    check_out(out)
    choose(dict.fromkeys(ORDERS), sort, "order of heads")
    _, translator, pairs = read_with(model, data, device, reverse, sentences)
    report = report_heads(translator, pairs, bleu, with_bar)
    if report.n_unread:
        say(f"[yellow]pairs left out, as a side is empty or longer than the model reads: {report.n_unread}[/]")
    if out is not None:
        from regard.plot.head_report import report_figure

        keep_figure(report_figure(report), out)
    if json_:
        return print_json(report.ranked(sort))
    from regard.plot.head_table import head_table

    print_tables(head_table(report, sort))

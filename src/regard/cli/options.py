"""The program that the commands belong to, and the options that several of them share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.plot.terminal import escaped, say

app = typer.Typer(
    name="regard",
    help="Attention: train, translate, and look at the parts. Each command prints a table, or --json.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

study = typer.Typer(help="Questions answered by measurement: each a table, a figure, or --json.", no_args_is_help=True)
app.add_typer(study, name="study")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Save the figure here: .png, .svg or .pdf.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="One setting, such as train.lr=3e-4. May be repeated.")]
SetDecode = Annotated[list[str] | None, typer.Option("--set", help="One decoding setting, such as beam=1.")]
Seed = Annotated[int, typer.Option(help="Draws the random numbers; the same seed gives the same result.")]
From = Annotated[str | None, typer.Option("--from", help="Source language, such as zh.")]
To = Annotated[str | None, typer.Option("--to", help="Target language, such as en.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="Translate the second side of the text into its first.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: the GPU where there is one.")]
Precision = Annotated[str, typer.Option(help="float32; int8, quicker on a CPU; bfloat16, quicker on a GPU.")]


def main() -> None:
    """Runs one command; a user's mistake ends in one line and exit code 2."""
    try:
        app()
    except ValueError as error:
        say(f"[bold red]error:[/] {escaped(str(error))}")
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone, and needs no message about it
        sys.exit(141)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit

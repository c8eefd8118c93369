"""The command line: argv becomes one call.

Commands are listed here, in the order of the help. The module of a command, and all that it imports, is loaded when the
command is run: `regard --help` need not wait for PyTorch, nor `regard translate` for what only training needs.
"""

import math
import os
import sys
from contextlib import suppress
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from regard import __version__
from regard.atomic import FULL
from regard.extras import importing, needed_by
from regard.terminal import escape, message

HELP = "Train sequence models with attention, run them fast, and look inside. Most commands print a table, or --json."
# The module below regard.cli, and what the help says; the command's function has the command's name.
COMMANDS = {
    "clean": ("clean", "Filter parallel text: drop pairs that are no translations, and say why."),
    "train": ("train", "Train a translation model on parallel text, or a language model on plain text."),
    "distill": ("distill", "Train a small model on a large one's translations of your text."),
    "average": ("train", "Average the weights of a run's last checkpoints, or of several models of one shape."),
    "translate": ("translate", "Translate sentences, files or stdin, line by line."),
    "evaluate": ("evaluate", "Translate a test set and score it: BLEU and chrF by sacreBLEU, with signatures."),
    "shortlist": ("evaluate", "Learn a lexical shortlist, which makes translate --shortlist faster."),
    "generate": ("generate", "Generate text from a prompt, printed token by token."),
    "perplexity": ("generate", "Measure the loss and the perplexity of a language model on texts."),
    "trace": ("trace", "Translate or generate, and show what every token attended to in this very run."),
    "regression": ("parts", "Attention as kernel regression: average, fixed and learned Gaussian pooling."),
    "scores": ("parts", "Compare attention scores on the same queries and keys; why the dot product is divided by √d."),
    "positions": ("parts", "Measure the properties of position encodings: unique, bounded, linear shifts and more."),
    "heads": ("align", "Report what every head attends to, and how much loss (or BLEU) rises without it."),
    "align": ("align", "Align the words of sentence pairs by attention, in Pharaoh format (i-j)."),
    "serve": ("serve", "Serve the web page and the HTTP API with all bundled models and your own."),
    "models": ("models", "List the bundled models, or show the card of one."),
    "info": ("models", "Show a model's size, settings, vocabulary and scores; or what this machine runs models with."),
    "import": ("import_", "Take over a translation model of Hugging Face's Transformers: MarianMT and its relatives."),
    "native": ("native", "Show which compiled library runs models here, or compile one for just this machine."),
    "export": ("export", "Write a model with smaller weights, or for Transformers, CTranslate2 or ONNX."),
}
STUDIES = {
    "images": "Small images as patches: must a classifier know where each patch lies?",
    "video": "Short clips of a moving shape: which coordinates reveal its direction?",
    "dialogue": "Dialogues without names or order: do turn and speaker positions restore who said what?",
    "position-probe": "Is position lost in the upper layers? A linear probe at each, with and without residuals.",
    "subspaces": "Do tokens and positions use nearly orthogonal subspaces, and which features carry position?",
    "mean-split": "The residual stream as a sum of means (position, context, word), and which pairs make the scores.",
    "heads": "How many heads does a model need? BLEU and loss while heads are removed, in three orders.",
    "complexity": "What attention, recurrence and convolution cost: operations, steps, paths, time and memory.",
    "bottleneck": "Sequence to sequence with and without attention: loss, accuracy and BLEU by sentence length.",
    "permutation": "Shuffle the words of a text: what changes with and without positions?",
    "norms": "Layer normalisation in recurrent cells by learning rate; batch against layer norm by batch size.",
    "residuals": "Train without residual connections: the loss that 2, 4, 8 and 12 layers reach.",
    "extrapolate": "Position encodings beyond the training length n: the loss at n, 2n, 3n and 4n.",
    "ablate": "Same data, same budget, one part exchanged: quality, speed and size of every variant.",
}
QUESTIONS = {
    "train": "Train an extractive reader on questions, and keep the epoch with the best validation F1.",
    "test": "Answer questions and score the answers (EM, F1) next to baselines without a model.",
    "ask": "Answer one question from a text, and show what its words attended to.",
}
GROUPS = {
    "study": ("Experiments about attention: each prints tables, draws a figure, or prints --json.", STUDIES),
    "qa": ("Extractive question answering: find the answer to a question in a text.", QUESTIONS),
}
# Option names of earlier versions, which keep working and are not shown.
RENAMED = {"output": "out", "O": "o", "trace": "out", "sentences": "limit", "most": "limit"}

app = typer.Typer(
    name="regard",
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: RENAMED.get(name, name),
    },
)


class LazyCommand(TyperCommand):
    """A command whose module is imported when the command is run or completed; until then it has a name and a line."""

    def __init__(self, name: str, module: str, summary: str):
        super().__init__(name, short_help=summary)
        self.module = module

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and let it parse its arguments; the context then belongs to it."""
        context = self.load().make_context(info_name, args, parent, **extra)
        numbers = [
            (name, each)
            for name, given in context.params.items()
            for each in (given if isinstance(given, tuple) else [given])
        ]
        for name, value in numbers:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"--{name.strip('_').replace('_', '-')} must be a finite number, got {value}")
        return context

    def load(self) -> Any:
        """Return the command itself; its help begins with the line of the list."""
        assert self.name is not None and self.short_help is not None, "a command is made with a name and a line"
        words = f"{self.module} {self.name}" if self.module in GROUPS else self.name
        with needed_by(f"regard {words}"), importing():
            module = import_module(f"regard.cli.{self.module}")
        function = getattr(module, self.name.replace("-", "_") + "_" * iskeyword(self.name))
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(self.name, help="\n\n".join(filter(None, (self.short_help, function.__doc__))))(function)
        return typer.main.get_command(single)


def make_program() -> TyperGroup:
    """Put the program together: every command in its group, none of them imported."""
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup), "the program's own options make it a group"
    for name, (module, summary) in COMMANDS.items():
        program.add_command(LazyCommand(name, module, summary))
    for group, (help_, commands) in GROUPS.items():
        made = TyperGroup(name=group, help=help_, no_args_is_help=True)
        for name, summary in commands.items():
            made.add_command(LazyCommand(name, group, summary))
        program.add_command(made)
    return program


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(f"regard {__version__}")
        raise typer.Exit


def check_arguments(arguments: list[str]) -> None:
    """Raise ValueError for an argument that is neither text nor the name of a file."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument) and not os.path.exists(argument):
            given = os.fsencode(argument)[:60]
            raise ValueError(f"an argument must be UTF-8, got {given!r}: convert it, or pass the text in a UTF-8 file")


def main() -> None:
    """Run one command; a user's mistake, or a full disk, ends in one line and exit code 2."""
    try:
        try:
            check_arguments(sys.argv[1:])
            with needed_by("this command"):
                make_program()()
        finally:
            sys.stdout.flush()
    except ValueError as error:
        message(f"[bold red]error:[/] {escape(str(error))}")
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has closed the pipe and needs no message
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            _discard_output()
        message(f"[bold red]error:[/] {escape(explain(error))}")
        sys.exit(2)


def explain(error: OSError) -> str:
    """Return an error of the operating system in one line: where, what, and the way out of a full disk."""
    where = "the output" if error.filename is None else str(error.filename)
    way_out = ": make room, and run the command again" if error.errno in FULL else ""
    return f"{where}: {error.strerror}{way_out}" if error.strerror else str(error)


def _discard_output() -> None:
    """Throw away what stdout still holds: Python would fail once more when it writes that at the end."""
    with suppress(OSError, ValueError):  # a stdout that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

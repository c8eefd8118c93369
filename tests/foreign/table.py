"""The table of docs/guide/import.md, measured: `python -m tests.foreign.table` writes it there."""

import re
import sys
import tempfile
import warnings
from pathlib import Path

import torch

import regard
from tests.foreign.checks import Imported, logits, search, take_over, their_attentions
from tests.foreign.siblings import KINDS, sibling
from tests.foreign.theirs import sentences, trained_marian

PAGE = Path(__file__).parent.parent.parent / "docs" / "guide" / "import.md"
BEGIN, END = "<!-- imported: python -m tests.foreign.table -->", "<!-- /imported -->"
HEADS = ("model", "logits, float32", "float64", "attention", "greedy", "beam 5, `early_stopping` true", "false")


def same(imported: Imported, **options: object) -> str:
    """Counts sentences of 200 that both write alike."""
    return f"{200 - len(search(imported, sentences(200, seed=5), **options).differing)}"


def attention_error(imported: Imported) -> float:
    """Compares the weights of a trace with those that their model returns."""
    translator, text = regard.load(imported.folder), sentences(1, seed=11)[0]
    trace = regard.trace_texts(translator, [text])[0].trace
    written = [node.token for node in trace.tree.path(trace.end_node)]
    expected = their_attentions(imported, text, written)
    differences = (torch.as_tensor(each.weights()) - expected[each.kind, each.layer] for each in trace.attention)
    return max(float(each.abs().max()) for each in differences)


def row(name: str, imported: Imported) -> str:
    """Measures one kind of model."""
    pairs = [logits(imported, sentences(3, seed=9), dtype) for dtype in (torch.float32, torch.float64)]
    numbers = [float((a - b).abs().max()) for a, b in pairs] + [attention_error(imported)]
    beams = [{"num_beams": 1}, {"num_beams": 5, "early_stopping": True}, {"num_beams": 5, "early_stopping": False}]
    errors = [f"{number:.0e}" if number else "0" for number in numbers]
    cells = [name, *errors, *(same(imported, **each) for each in beams)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measures every kind, and writes the table into the page."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        rows = [row("MarianMT", take_over(trained_marian(home / "opus-mt-en-fr"), home / "ours"))]
        for kind in KINDS:
            rows.append(row(kind, take_over(sibling(kind, home / kind / "theirs"), home / kind / "ours")))
    table = "\n".join([f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", *rows])
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n{table}\n{END}", text), encoding="utf-8")
    sys.stdout.write(table + "\n")


if __name__ == "__main__":
    main()

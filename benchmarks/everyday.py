"""Are greetings, single words, dates, prices and short questions translated right, with and without a final mark?

Each line of tests/zoo/everyday.tsv names a direction, a source with the mark it usually ends with, and the answers that
count as right. A translation counts if it equals one of them but for case, commas, final marks and, in Chinese, spaces.
The list is for judging a finished model, never for training or choosing one.
"""

import argparse
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import keep
from rich.console import Console
from rich.table import Table

from regard.pipeline import load_translator
from regard.pipeline.translator import Translator
from regard.study.repeats import signature

LINES = Path(__file__).parent.parent / "tests/zoo/everyday.tsv"
FINAL = ".!?。！？…"
COMMAS = re.compile("[,，、]")
MARKS = {"zh": "。", "en": "."}


@dataclass(frozen=True)
class Line:
    """A source, and the answers that count."""

    src: str
    answers: frozenset[str]

    def with_mark(self, language: str) -> str:
        """Return the source with a final mark, its own if it has one."""
        return self.src if self.src[-1] in FINAL else self.src + MARKS[language]

    def without_mark(self) -> str:
        return self.src.rstrip(FINAL)


def read_lines(path: Path, direction: str) -> list[Line]:
    """Read the lines of a direction such as zh-en."""
    rows = [row.split("\t") for row in path.read_text(encoding="utf-8").splitlines()]
    tgt_lang = direction.split("-")[1]
    return [
        Line(src, frozenset(reduce(answer, tgt_lang) for answer in answers.split("|")))
        for way, src, answers in rows
        if way == direction
    ]


def reduce(text: str, language: str) -> str:
    """Return a text without what does not count: case, commas, final marks, and spaces of Chinese."""
    text = unicodedata.normalize("NFKC", text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").casefold()
    words = COMMAS.sub("", text).rstrip(FINAL).split()
    return ("" if language == "zh" else " ").join(words)


def count_right(model: Translator) -> dict[str, Any]:
    """Return how many lines are right with a final mark and without, and the translations that are not."""
    lines = read_lines(LINES, f"{model.src_lang}-{model.tgt_lang}")
    ways = {
        "with": [line.with_mark(model.src_lang) for line in lines],
        "without": [line.without_mark() for line in lines],
    }
    counts, wrong = {}, []
    for way, sources in ways.items():
        said = [found.text for found in model.translate(sources)]
        missed = [
            (src, text)
            for src, text, line in zip(sources, said, lines, strict=True)
            if reduce(text, model.tgt_lang) not in line.answers
        ]
        counts[way] = len(lines) - len(missed)
        wrong += missed
    return {**counts, "lines": len(lines), "wrong": wrong}


def main() -> None:
    """Translate, count, show and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["zh-en", "en-zh"])
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    table, rows = Table("model", "with a final mark", "without", "lines"), []
    for name in given.model:
        row = count_right(load_translator(name, given.precision))
        rows.append({"model": name, **row})
        table.add_row(name, *(str(row[key]) for key in ("with", "without", "lines")))
    Console().print(table)
    sign = signature("cpu", models=given.model, precision=given.precision)
    keep("everyday-cpu", {"rows": rows, "signature": sign}, given.results)


if __name__ == "__main__":
    main()

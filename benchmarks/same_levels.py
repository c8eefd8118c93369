"""Does the same model translate the same on every set of instructions?

Each library of the package that this processor can run translates all sentences of a file in int8, in a process of its
own, forced by REGARD_NATIVE. Texts and scores must be the same to the last bit. Seconds are those of the process's
cores, loading included.
"""

import argparse
import hashlib
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from measure import keep
from rich.console import Console
from rich.table import Table

from regard.cli.native import report_system
from regard.study.repeats import signature

TRANSLATE = """
import sys, regard
from regard.data.formats import read_pairs
texts = [pair.src for pair in read_pairs([sys.argv[2]], "zh", "en")]
for each in regard.load(sys.argv[1], precision=sys.argv[3]).translate(texts):
    print(each.score.hex(), each.text.replace(chr(10), " "))
"""


def translations(level: str, model: str, data: Path, precision: str) -> tuple[str, float]:
    """Return what one library writes, and the seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", TRANSLATE, model, str(data), precision]
    done = subprocess.run(command, env={**os.environ, "REGARD_NATIVE": level}, stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout.decode(), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def differing(found: str, expected: str) -> int:
    """Count lines that are not the same."""
    lines, others = found.splitlines(), expected.splitlines()
    assert len(lines) == len(others), "each sentence has one line"
    return sum(line != other for line, other in zip(lines, others, strict=True))


def main() -> None:
    """Translates with every level, compares, shows and keeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="parallel text, such as the test set of zh-en-tatoeba")
    parser.add_argument("--model", default="zh-en")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    levels = report_system().processor
    rows: list[dict[str, Any]] = []
    expected = ""
    for level in levels:
        found, seconds = translations(level, given.model, given.data, "int8")
        expected = expected or found
        digest = hashlib.sha256(found.encode()).hexdigest()[:16]
        rows.append(
            {"level": level, "sentences": found.count("\n"), "differ": differing(found, expected), "sha256": digest}
            | {"cpu_s": seconds}
        )
    table = Table(title=f"{given.model} in int8, texts and scores on each set of instructions")
    for column in ("instructions", "sentences", "that differ", "SHA-256", "CPU s"):
        table.add_column(column, justify="left" if column in {"instructions", "SHA-256"} else "right")
    for row in rows:
        table.add_row(row["level"], f"{row['sentences']:,}", str(row["differ"]), row["sha256"], f"{row['cpu_s']:.0f}")
    Console(width=100).print(table)
    sign = signature("cpu", model=given.model, data=given.data.name)
    keep("same_levels-cpu", {"signature": sign, "rows": rows}, given.results)


if __name__ == "__main__":
    main()

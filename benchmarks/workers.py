"""How much memory does each of several processes with one model have to itself?

Each process opens the bundled model, translates one sentence and waits, so that all are alive at once. Private memory
is what `/proc/PID/smaps_rollup` counts as private, proportional memory is shared pages divided among their users.
The floor is the packed weights, of which each process has a copy: one byte for each parameter of a linear map in int8.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from measure import keep
from rich.console import Console
from rich.table import Table

from regard.study.repeats import signature

TARGET = 60.0  # MB of private memory in int8
WORK = """
import sys, regard
translator = regard.load(sys.argv[1], precision=sys.argv[2])
print(translator.translate([sys.argv[3]])[0].text, flush=True)
sys.stdin.read()
"""
TEXT = "我昨天在北京买了一本关于音乐的书。"


def memory_of(process: int) -> dict[str, float]:
    """Return what a process has to itself, and its share of the rest, in MB."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    kib = {name: int(value) for name, value in re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)}
    found = {"private": kib["Private_Clean"] + kib["Private_Dirty"], "proportional": kib["Pss"], "resident": kib["Rss"]}
    return {name: value * 1024 / 1e6 for name, value in found.items()}


def measure(python: str, model: str, precision: str, n: int) -> dict[str, Any]:
    """Run some processes at once; return the medians of what they hold."""
    command = [python, "-c", WORK, model, precision, TEXT]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(n)]
    said = [process.stdout.readline().strip() for process in running if process.stdout is not None]
    found = [memory_of(process.pid) for process in running]
    for process in running:
        process.communicate()
    assert all(said) and len(set(said)) == 1, f"all must translate alike, got {said}"
    return {"precision": precision, "processes": n} | {name: median(each[name] for each in found) for name in found[0]}


def main() -> None:
    """Measures, shows and keeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter with regard, best without torch")
    parser.add_argument("--model", default="zh-en")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    rows = [measure(given.python, given.model, each, n) for each in ("int8", "float32") for n in given.processes]
    table = Table(title=f"{given.model}: MB of each process (medians)")
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "precision" else "right")
    for row in rows:
        table.add_row(row["precision"], str(row["processes"]), *(f"{value:.0f}" for value in list(row.values())[2:]))
    Console(width=100).print(table)
    keep(
        "workers-cpu", {"signature": signature("cpu", model=given.model), "target": TARGET, "rows": rows}, given.results
    )


if __name__ == "__main__":
    main()

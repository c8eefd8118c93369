"""How long does one translation take in a fresh process, and how much memory?

The process imports, opens the bundled model, translates one sentence with beam 5 in one thread and ends. CTranslate2
has the same weights, tokenizer, precision and beam, and takes turns with ours; it was converted before. Its program is
the shortest that its documentation shows, with the import of SentencePiece, which ours needs too. The floor is a
process of Python that imports NumPy and SentencePiece, opens the tokenizer and reads the bytes of the model's weights.

CPU seconds are user and system time of the process by `wait4`, and so is the peak of its memory: other work on the
machine hardly moves them, while it does move the seconds on the clock. Both systems should run where neither finds
PyTorch, which CTranslate2 imports if it is there: name such an interpreter with --python.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from measure import keep, quartiles
from peers.ctranslate import write_model
from peers.marian import copy_weights, make_marian
from rich.console import Console
from rich.table import Table

from regard.checkpoint.weights import load_model
from regard.model import Transformer
from regard.study.repeats import signature
from regard.study.timing import Timing
from regard.zoo import named

MODEL, TEXT = "zh-en", "我昨天在北京买了一本关于音乐的书。"
PRECISIONS = ("int8", "float32")
TARGETS = {"cpu": 1.0, "wall_s": 0.35, "peak_mb": 120.0}  # CPU as a multiple of CTranslate2's
FLOOR = """
import sys, numpy, sentencepiece
sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
for path in sys.argv[2:]: open(path, "rb").read()
"""
OURS = """
import sys, regard
print(regard.load(sys.argv[1], precision=sys.argv[2]).translate([sys.argv[3]])[0].text)
"""
PEER = """
import sys, ctranslate2, sentencepiece
tokenizer = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
translator = ctranslate2.Translator(sys.argv[2], compute_type=sys.argv[3], intra_threads=1)
pieces = [*tokenizer.encode(sys.argv[4], out_type=str), "</s>"]
print(tokenizer.decode(translator.translate_batch([pieces], beam_size=5)[0].hypotheses[0]))
"""
# The peak that `wait4` tells counts the memory of the process that forked, so a small one does.
LAUNCH = """
import json, os, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
said, warned = process.stdout.read(), process.stderr.read()
_, status, used = os.wait4(process.pid, 0)
wall = time.perf_counter() - began
process.returncode = os.waitstatus_to_exitcode(status)
if status: sys.exit(warned.decode())
print(json.dumps([used.ru_utime + used.ru_stime, wall, used.ru_maxrss, said.decode()]))
"""
VERSIONS = """
import json
from importlib.metadata import packages_distributions, version
names = ("numpy", "sentencepiece", "ctranslate2", "typer", "torch")
found = packages_distributions()
print(json.dumps({name: version(name) if name in found else None for name in names}))
"""


class Spent(NamedTuple):
    """What one process took: seconds of its cores, seconds on the clock, and megabytes at its peak."""

    cpu_s: float
    wall_s: float
    peak_mb: float


def spend(command: list[str], bytecode: Path) -> tuple[Spent, str]:
    """Run a process to its end; return what it took and what it printed."""
    launch = [sys.executable, "-I", "-S", "-c", LAUNCH, *command]
    done = subprocess.run(launch, stdout=subprocess.PIPE, text=True, env=environment(bytecode), check=True)
    cpu, wall, peak_kib, said = json.loads(done.stdout)
    return Spent(cpu, wall, peak_kib * 1024 / 1e6), said.strip()


def environment(bytecode: Path) -> dict[str, str]:
    """Return the variables of a process that uses one thread, and finds bytecode as an installed program does.

    Without a folder for it, sources that lie in a clone might be compiled in each process, and packages not.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": str(bytecode)}


def convert(name: str, folder: Path) -> None:
    """Write a bundled model as CTranslate2 reads it, in a folder for each precision."""
    checkpoint = load_model(named(name))
    model, made, tokenizer = checkpoint.model, checkpoint.settings.model, checkpoint.tokenizer
    assert isinstance(model, Transformer), "the peer is a Transformer"
    vocab_size = tokenizer.vocab_size("src")
    marian = make_marian(made, vocab_size)
    copy_weights(model, marian)
    words = tokenizer.pieces(range(vocab_size), "tgt")
    for precision in PRECISIONS:
        (folder / precision).mkdir()
        write_model(marian, precision, words, folder / precision, made.norm_place == "before")


def commands(python: str, name: str, text: str, converted: Path) -> dict[str, list[str]]:
    """Return the command line of each system."""
    tokenizer = str(named(name) / "tokenizer.model")
    weights = [str(path) for path in sorted(named(name).glob("*.safetensors"))]
    found = {"floor": [python, "-c", FLOOR, tokenizer, *weights]}
    for precision in PRECISIONS:
        model = str(converted / precision)
        found[f"CTranslate2 {precision}"] = [python, "-c", PEER, tokenizer, model, precision, text]
        found[f"regard.load {precision}"] = [python, "-c", OURS, name, precision, text]
        program = [python, "-m", "regard", "translate", "--model", name]
        found[f"regard translate {precision}"] = [*program, "--precision", precision, text]
    return found


def measure(
    systems: dict[str, list[str]], rounds: int, bytecode: Path
) -> tuple[dict[str, dict[str, Timing]], dict[str, str]]:
    """Let all systems take turns after a round that fills caches; return quartiles and translations."""
    taken: dict[str, list[Spent]] = {name: [] for name in systems}
    said = {}
    for n in range(rounds + 1):
        for name, command in systems.items():
            spent, said[name] = spend(command, bytecode)
            if n:
                taken[name].append(spent)
    found = {
        name: {field: quartiles([getattr(each, field) for each in some]) for field in Spent._fields}
        for name, some in taken.items()
    }
    return found, said


def rows_of(found: dict[str, dict[str, Timing]], said: dict[str, str]) -> list[dict[str, Any]]:
    """Set every system against CTranslate2 of its precision, and ours against the targets."""
    rows = []
    for name, measured in found.items():
        peer = found.get(f"CTranslate2 {name.split()[-1]}")
        ratio = None if peer is None else measured["cpu_s"].median / peer["cpu_s"].median
        row: dict[str, Any] = {"system": name, "cpu_of_ct2": ratio, "said": said[name]}
        for field, timing in measured.items():
            row |= {field: timing.median, f"{field}_low": timing.low, f"{field}_high": timing.high}
        if name.startswith("regard") and ratio is not None:
            values = {"cpu": ratio, "wall_s": row["wall_s"], "peak_mb": row["peak_mb"]}
            row["missed"] = [key for key, most in TARGETS.items() if values[key] > most]
        rows.append(row)
    return rows


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Show medians with the middle half."""
    table = Table(title=f"{MODEL}, one sentence, a fresh process, one thread; medians (middle half)")
    for column in ("system", "CPU s", "× CTranslate2", "wall s", "peak MB", "misses"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for row in rows:
        ratio = "" if row["cpu_of_ct2"] is None else f"{row['cpu_of_ct2']:.2f}"
        cpu, wall = (_spread(row, field, ".3f") for field in ("cpu_s", "wall_s"))
        table.add_row(row["system"], cpu, ratio, wall, f"{row['peak_mb']:.0f}", ", ".join(row.get("missed", [])))
    return table


def _spread(row: dict[str, Any], field: str, form: str) -> str:
    return f"{row[field]:{form}} ({row[f'{field}_low']:{form}} … {row[f'{field}_high']:{form}})"


def main() -> None:
    """Converts, measures, shows and keeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=None, help="interpreter with regard and ctranslate2, without torch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    python = given.python or sys.executable
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as folder:
        convert(MODEL, Path(folder))
        systems = commands(python, MODEL, TEXT, Path(folder))
        found, said = measure(systems, given.rounds, Path(folder) / "bytecode")
    rows = rows_of(found, said)
    console.print(table_of(rows))
    versions = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout
    sign = signature("cpu", model=MODEL, text=TEXT, rounds=given.rounds, packages=json.loads(versions))
    keep("start-cpu", {"signature": sign | {"threads": 1}, "targets": TARGETS, "rows": rows}, given.results)


if __name__ == "__main__":
    main()

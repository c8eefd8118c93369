"""How well does `regard clean` find noise that was planted, and how fast and in how much memory does it work?

`python benchmarks/clean.py CORPORA` plants noise in a tenth of zh-en-software: targets of other pairs, sides that
repeat the other, targets in German or French, and sides that end early, a quarter each, none of them made by the
filter's own code. A pair is found if it is dropped for whatever reason. What is dropped of the pairs that were not
planted counts against the precision, whether it was good or not, but for duplicates, which are no kind that was
planted. Then a million pairs of all zh-en training sets are cleaned for speed and peak memory.

`--models zh-en,en-zh` cleans the planted text with two models, which have read the training text themselves.
"""

import argparse
import lzma
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

from measure import keep

from regard.clean import CleanOutputs, clean
from regard.clean.learning import CleanSettings
from regard.clean.rules import REASONS
from regard.cli.clean import open_reader
from regard.study.repeats import signature

SHARE = 0.1  # of the pairs that become noise
KINDS = ("shuffled", "copied", "language", "truncated")
STRANGERS = ("de-en-tatoeba", "fr-en-tatoeba")
CORPORA = ("games", "docs", "manuals", "software", "law", "tatoeba", "bible", "cedict")
REPEATS = ("duplicate", "near-duplicate")  # reasons that are no kind of noise
MILLION = 1_000_000


def read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            src, tgt, *_ = [*line.rstrip("\n").split("\t"), ""]
            yield src, tgt


def plant(pairs: list[tuple[str, str]], strangers: list[str], seed: int) -> list[str]:
    """Turn a tenth of the pairs into noise, in place, and return what each is now: a kind of noise, or ok."""
    rng = random.Random(seed)
    kinds = ["ok"] * len(pairs)
    places = rng.sample(range(len(pairs)), int(SHARE * len(pairs)))
    quarter = len(places) // 4
    shuffled, copied, foreign, cut = (places[i * quarter : (i + 1) * quarter] for i in range(4))
    targets = [pairs[place][1] for place in [*shuffled[1:], *shuffled[:1]]]
    for place, tgt in zip(shuffled, targets, strict=True):
        if tgt != pairs[place][1]:
            pairs[place], kinds[place] = (pairs[place][0], tgt), "shuffled"
    for place in copied:
        text = pairs[place][rng.randrange(2)]
        pairs[place], kinds[place] = (text, text), "copied"
    for place in foreign:
        pairs[place], kinds[place] = (pairs[place][0], rng.choice(strangers)), "language"
    for place in cut:
        side = rng.randrange(2)
        text = cut_off(pairs[place][side], rng.uniform(0.3, 0.7))
        if text != pairs[place][side]:
            pairs[place] = (text, pairs[place][1]) if side == 0 else (pairs[place][0], text)
            kinds[place] = "truncated"
    return kinds


def cut_off(text: str, share: float) -> str:
    """Keep the first words, or characters where there are no spaces; at least one of them."""
    if " " in text:
        words = text.split()
        return " ".join(words[: max(1, int(len(words) * share))])
    return text[: max(1, int(len(text) * share))]


def dropped_reasons(path: Path) -> dict[int, str]:
    """Return the reason for each line that was dropped, counted from 0."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {int(row[1].rsplit(" ", 1)[1]) - 1: row[0] for row in rows}


def measure_planted(pairs: list[tuple[str, str]], kinds: list[str], models: tuple[str, ...], workers: int) -> Any:
    """Clean the text, and count by kind what was dropped and for what reason."""
    with tempfile.TemporaryDirectory() as folder:
        source, rejected = Path(folder) / "planted.tsv", Path(folder) / "rejected.tsv"
        source.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
        outputs = CleanOutputs(Path(folder) / "kept.tsv", rejected)
        reader = open_reader(models[0], models[1], "cpu") if models else None
        seconds, cpu = time.perf_counter(), cpu_seconds()
        report = clean([str(source)], outputs, CleanSettings(), workers, say, reader)
        seconds, cpu = time.perf_counter() - seconds, cpu_seconds() - cpu
        reasons = dropped_reasons(rejected)
    table = {kind: Counter(reasons.get(i, "kept") for i, own in enumerate(kinds) if own == kind) for kind in set(kinds)}
    natural = table["ok"].total() - table["ok"]["kept"] - sum(table["ok"][reason] for reason in REPEATS)
    dropped = {kind: table[kind].total() - table[kind]["kept"] for kind in KINDS}
    n_found, n_planted = sum(dropped.values()), sum(table[kind].total() for kind in KINDS)
    return {
        "pairs": len(pairs),
        "planted": n_planted,
        "recall": {kind: round(dropped[kind] / table[kind].total(), 4) for kind in KINDS}
        | {"all": round(n_found / n_planted, 4)},
        "precision": round(n_found / (n_found + natural), 4),
        "reasons": {kind: dict(table[kind].most_common()) for kind in (*KINDS, "ok")},
        "noise_shares": {kind: round(share, 4) for kind, share in report.noise_shares.items()},
        "samples": {r: [[s.src, s.tgt] for s in report.samples[r][:2]] for r in REASONS if report.samples[r]},
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
    }


def say(text: str) -> None:
    print(text, file=sys.stderr)


def cpu_seconds() -> float:
    """Return the processor time of this process and of those that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def training_pairs(corpora: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of all training sets: 1,134,863."""
    for name in CORPORA:
        path = corpora / f"zh-en-{name}" / "train.tsv.xz"
        yield from read_pairs(path if path.exists() else path.with_name("pairs.tsv.xz"))


def private_mib(pid: int) -> float:
    """Return the memory that a process and those it has started have, what they share divided among them."""
    total = 0.0
    for each in [pid, *children(pid)]:
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    lists = [(task / "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(each) for some in lists for each in some]


def measure_speed(corpora: Path, n: int, workers: int) -> dict[str, Any]:
    """Clean n pairs; return seconds, processor seconds, and the peak of the memory of all processes."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.tsv"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{src}\t{tgt}\n" for src, tgt in islice(training_pairs(corpora), n))
        peak, done = [0.0], Event()

        def watch() -> None:
            while not done.wait(0.5):
                peak[0] = max(peak[0], private_mib(os.getpid()))

        watcher = Thread(target=watch)
        watcher.start()
        seconds, cpu = time.perf_counter(), cpu_seconds()
        report = clean([str(source)], CleanOutputs(Path(folder) / "kept.tsv"), CleanSettings(), workers, say)
        seconds, cpu = time.perf_counter() - seconds, cpu_seconds() - cpu
        done.set()
        watcher.join()
        size = source.stat().st_size >> 20
    return {
        "pairs": report.read,
        "mib": size,
        "kept": report.kept,
        "dropped": report.dropped,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "load": round(os.getloadavg()[1], 1),  # of other work too
        "peak_mib": round(peak[0]),
    }


def print_planted(name: str, found: dict[str, Any]) -> None:
    print(f"\n{name}: {found['pairs']:,} pairs, {found['planted']:,} planted; precision {found['precision']:.4f}")
    for kind in (*KINDS, "ok"):
        recall = f"{found['recall'][kind]:.4f}" if kind != "ok" else "      "
        print(f"  {kind:10} {recall}  {found['reasons'][kind]}")
    print(f"  all        {found['recall']['all']:.4f}  in {found['seconds']} s, {found['cpu_seconds']} s of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--corpus", default="zh-en-software")
    parser.add_argument("--split", default="train")
    parser.add_argument("--pairs", type=int, default=None, help="of the planted text; all by default")
    parser.add_argument("--models", default="", help="two models, joined by a comma")
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--speed-pairs", type=int, default=MILLION, help="0 leaves the speed out")
    parser.add_argument("--planted", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    parser.add_argument("--name", default="clean-cpu", help="of the file with the JSON line")
    given = parser.parse_args()
    result: dict[str, Any] = {"signature": signature("cpu", seed=given.seed, workers=given.workers)}
    models = tuple(filter(None, given.models.split(",")))
    if given.planted:
        pairs = list(read_pairs(given.corpora / given.corpus / f"{given.split}.tsv.xz"))
        random.Random(given.seed).shuffle(pairs)
        del pairs[given.pairs :]
        strangers = [src for name in STRANGERS for src, _ in read_pairs(given.corpora / name / "train.tsv.xz")]
        kinds = plant(pairs, strangers, given.seed)
        name = f"{given.corpus} {given.split}, {'with ' + ' and '.join(models) if models else 'without models'}"
        result["planted"] = {name: measure_planted(pairs, kinds, models, given.workers)}
        print_planted(name, result["planted"][name])
    if given.speed_pairs:
        result["speed"] = measure_speed(given.corpora, given.speed_pairs, given.workers)
        print(f"\nspeed: {result['speed']}")
    keep(given.name, result, given.results)


if __name__ == "__main__":
    main()

"""What does a shortlist bring, and what does it cost?

The same sentences are translated with all words and with a shortlist, on one core, one by one and in batches, round
after round; quality is BLEU, and how many translations are the same.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from measure import interleave, keep
from rich.console import Console
from rich.table import Table

from regard.data.formats import read_pairs
from regard.pipeline import load_translator
from regard.study.repeats import signature

BATCHES = {"one by one": 1, "in batches of 1,024 pieces": 1024, "of 4,096": 4096}


def main() -> None:
    """Measures, shows and keeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shortlist", type=Path, required=True, help="made by regard shortlist")
    parser.add_argument("--data", required=True, help="parallel text")
    parser.add_argument("--model", default="zh-en")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table, rows = Table(title=f"{given.model}, {given.lines:,} lines, one core"), []
    for head in ("way", "all words, s", "shortlist, s", "× faster", "the same", "BLEU", "with shortlist"):
        table.add_column(head, justify="right")
    for precision in ("float32", "int8"):
        plain = load_translator(given.model, precision)
        short = load_translator(given.model, precision, shortlist=given.shortlist)
        pairs = list(islice(read_pairs([given.data], plain.src_lang, plain.tgt_lang), given.lines))
        texts, wanted = [pair.src for pair in pairs], [pair.tgt for pair in pairs]
        for beam in (1, 5):
            for name, batch_tokens in BATCHES.items():
                method = "greedy" if beam == 1 else "beam"
                chosen = replace(plain.settings, beam=beam, method=method, batch_tokens=batch_tokens)
                ways = {"all": plain, "short": short}
                calls: dict[str, Callable[[], Any]] = {
                    way: partial(each.translate, texts, chosen) for way, each in ways.items()
                }
                times = interleave(calls, "cpu", 0.0, given.rounds)
                said = {way: [found.text for found in each.translate(texts, chosen)] for way, each in ways.items()}
                bleu = {way: sacrebleu.corpus_bleu(some, [wanted]).score for way, some in said.items()}
                same = sum(a == b for a, b in zip(*said.values(), strict=True)) / len(texts)
                seconds = {way: timing.median for way, timing in times.items()}
                way, gain = f"{precision}, beam {beam}, {name}", seconds["all"] / seconds["short"]
                rows.append({"way": way, "seconds": seconds, "gain": gain, "same": same, "bleu": bleu})
                shown = (f"{seconds['all']:.2f}", f"{seconds['short']:.2f}", f"{gain:.2f}", f"{same:.1%}")
                table.add_row(way, *shown, f"{bleu['all']:.2f}", f"{bleu['short']:.2f}")
    Console(width=140).print(table)
    sign = signature("cpu", model=given.model, lines=given.lines, shortlist=given.shortlist.name)
    keep("shortlist-cpu", {"rows": rows, "signature": sign}, given.results)


if __name__ == "__main__":
    main()

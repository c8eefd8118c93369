"""What do the bundled models make of the first sentences of a test text, whichever they are?

Nothing is selected: the sentence of the demo, and the first lines of the text, each beside its reference.
"""

import argparse
from itertools import islice
from pathlib import Path

from regard.data.formats import read_pairs
from regard.pipeline import load_translator

DEMO = ("介绍一下西安", "Introduce Xi'an")
COMMAND = "python benchmarks/samples.py --corpus CORPORA/zh-en-tatoeba --out docs/samples.md"


def table(name: str, pairs: list[tuple[str, str]]) -> str:
    """Translates one way, and sets source, translation and reference side by side."""
    found = load_translator(name).translate([src for src, _ in pairs])
    rows = (f"| {src} | {one.text} | {tgt} |" for (src, tgt), one in zip(pairs, found, strict=True))
    return "\n".join([f"## {name}", "", "| source | translation | reference |", "|---|---|---|", *rows, ""])


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of zh-en-tatoeba")
    parser.add_argument("--out", type=Path, default=Path("docs/samples.md"))
    parser.add_argument("--n", type=int, default=20)
    chosen = parser.parse_args()
    read = read_pairs((str(chosen.corpus / "test-hans.tsv.xz"),), "zh", "en")
    pairs = [DEMO, *((pair.src, pair.tgt) for pair in islice(read, chosen.n))]
    head = (
        "# Samples\n\nThe sentence of the demo and the first "
        f"{chosen.n} of the Tatoeba test (Simplified), unselected, as the bundled models translate them with\nbeam 5. "
        "No sentence of the test, and not the demo's, is in their training text. `zh-en` is one training run, the\n"
        "first of its recipe with its data, and was not chosen among several; models before it were tried with "
        "the demo's name in view\n"
        "(docs/log.md). The test was read when its training ended, and three times again for its stored form.\n\n"
        f"```sh\n{COMMAND}\n```\n\n"
    )
    backwards = [(tgt, src) for src, tgt in pairs]
    tables = [table("zh-en", pairs), table("en-zh", backwards), table("zh-en-recurrent", pairs)]
    chosen.out.write_text(head + "\n".join(tables), encoding="utf-8")


if __name__ == "__main__":
    main()

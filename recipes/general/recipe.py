"""From the raw corpora to models for general text: `python recipes/general/recipe.py --corpora CORPORA --out RUNS`.

1. text: a dictionary without "to", short sentences without final marks, pairs both ways, lines of one language.
2. both: one model learns both directions from what people have translated.
3. translate: it translates all lines of one language; what it writes is tagged where it is a source.
4. each direction goes on from that model by itself, with the translations of step 3.
5. export: in 8 bits, in files of 15 MiB.
6. evaluate: scores on the development sets.

A step that is done is not done again; an interrupted training is resumed. RUNS/steps.jsonl keeps the time of each.
"""

import argparse
import json
import lzma
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
FINAL = re.compile(r"[.!?。！？]$")
INNER = re.compile(r"[.!?。！？,，;；:：]")
NO_WORD = re.compile(r"\b(variant of|component in|radical in)\b")
SHORT = 8  # words
PART = 40_000  # lines that one process translates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--lines", type=int, help="only so many lines of each corpus, to try the script")
    parser.add_argument("--until", choices=["text", "both", "translate", "directions", "export", "evaluate"])
    parser.add_argument("--set", action="append", default=[], help="of all trainings, such as train.max_minutes=1")
    args = parser.parse_args()
    recipe = Recipe(args.corpora, args.out, args.device, args.lines, args.set)
    args.out.mkdir(parents=True, exist_ok=True)
    steps = {
        "text": recipe.write_text,
        "both": lambda: recipe.train(["both"]),
        "translate": recipe.translate,
        "directions": lambda: recipe.train(["zh-en", "en-zh"]),
        "export": recipe.export,
        "evaluate": recipe.evaluate,
    }
    for name, do in steps.items():
        recipe.step(name, do)
        if name == args.until:
            return


class Recipe:
    """Folders, the device, and what differs in a trial."""

    def __init__(self, corpora: Path, out: Path, device: str, lines: int | None, settings: list[str]):
        self.corpora, self.out, self.device, self.lines = corpora, out, device, lines
        self.settings = [part for setting in settings for part in ("--set", setting)]

    def step(self, name: str, do: Callable[[], None]) -> None:
        log = self.out / "steps.jsonl"
        done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if name in {each["step"] for each in done}:
            return
        began = time.perf_counter()
        do()
        with log.open("a") as file:
            print(json.dumps({"step": name, "seconds": round(time.perf_counter() - began, 1)}), file=file)
        print(f"== {name}: {time.perf_counter() - began:.0f} s", flush=True)

    def write_text(self) -> None:
        for name in ("tatoeba", "games", "docs", "manuals", "software", "law", "bible"):
            pairs = list(self.pairs(f"zh-en-{name}/train.tsv.xz"))
            self.write(f"{name}.tsv", pairs)
            self.write(f"{name}-back.tsv", [(en, zh) for zh, en in pairs])
        words = [
            (zh, en.removeprefix("to ")) for zh, en in self.pairs("zh-en-cedict/pairs.tsv.xz") if not NO_WORD.search(en)
        ]
        short = [
            (FINAL.sub("", zh), FINAL.sub("", en))
            for name in ("tatoeba", "games")
            for zh, en in self.pairs(f"zh-en-{name}/train.tsv.xz")
            if FINAL.search(zh) and len(en.split()) <= SHORT and not INNER.search(zh[:-1] + en[:-1])
        ]
        for name, pairs in (("words", words), ("short", short)):
            self.write(f"{name}.tsv", pairs)
            self.write(f"{name}-back.tsv", [(en, zh) for zh, en in pairs])
        self.write("lower-back.tsv", [(en.lower(), zh) for zh, en in short])
        everyday = {en for name in ("de", "fr") for _, en in self.pairs(f"{name}-en-tatoeba/train.tsv.xz")}
        self.write("everyday.en", [(line,) for line in sorted(everyday)])
        for language in ("en", "zh"):
            self.write(f"mono.{language}", [(line,) for (line,) in self.rows(f"mono-{language}/text.txt.xz")])
        valid = [*self.pairs("zh-en-wiki/valid.tsv.xz"), *self.pairs("zh-en-tatoeba/valid.tsv.xz")]
        back = [(en, zh) for zh, en in valid]
        for name, pairs in (("zh-en", valid), ("en-zh", back), ("both", [*valid, *back])):
            self.write(f"valid-{name}.tsv", pairs)

    def translate(self) -> None:
        """Translate all lines of one language, in several processes, and keep them as pairs of both directions."""
        for name in ("everyday.en", "mono.en", "mono.zh"):
            lines = (self.out / "text" / name).read_text(encoding="utf-8").splitlines()
            for n, first in enumerate(range(0, len(lines), PART)):
                self.write(f"{name}.{n}", [(line,) for line in lines[first : first + PART]])
        parts = sorted((self.out / "text").glob("*.*[0-9]"), key=lambda part: -part.stat().st_size)
        waiting = [path for path in parts if path.suffix[1:].isdigit()]
        running: list[subprocess.Popen[bytes]] = []
        for part in waiting:
            if len(running) == 6:
                finish(running.pop(0))
            model = str(self.out / "both" / "model")
            options = ["--pairs", "--input", str(part), "--out", f"{part}.tsv", "--device", self.device, "--beam", "4"]
            running.append(self.regard("translate", "--model", model, *options, "--set", "split=overlong"))
        for process in running:
            finish(process)
        for name in ("everyday.en", "mono.en", "mono.zh"):
            texts = (path.read_text(encoding="utf-8") for path in sorted((self.out / "text").glob(f"{name}.*.tsv")))
            pairs = [tuple(line.split("\t")) for text in texts for line in text.splitlines()]
            good = [(made, line) for made, line in pairs if is_sane(made, line)]
            print(f"{name}: {len(good):,} of {len(pairs):,} translations are kept")
            self.write(f"{name}-made.tsv", good)  # the made sentence is the source
            self.write(f"made-{name}.tsv", [(line, made) for made, line in good])

    def train(self, names: list[str]) -> None:
        runs = []
        for name in names:
            out = self.out / name
            if (out / "checkpoints").exists():
                runs.append(self.regard("train", "--out", str(out), "--resume"))
                continue
            init = [] if name == "both" else ["--init", str(self.out / "both" / "model")]
            options = ["--config", str(HERE / f"{name}.toml"), "--corpora", str(self.linked()), *init]
            runs.append(self.regard("train", "--out", str(out), "--device", self.device, *options, *self.settings))
        for run in runs:
            finish(run)

    def linked(self) -> Path:
        """Return a folder with the text of this recipe beside the corpora."""
        folder = self.out / "corpora"
        folder.mkdir(exist_ok=True)
        for path in (*self.corpora.iterdir(), self.out / "text"):
            if not (folder / path.name).exists():
                (folder / path.name).symlink_to(path.resolve())
        return folder

    def export(self) -> None:
        runs = [(self.out / name, self.out / f"{name}-int8") for name in ("zh-en", "en-zh")]
        for export in [self.regard("export", str(run), "--out", str(out), "--shard-mib", "15") for run, out in runs]:
            finish(export)

    def evaluate(self) -> None:
        for name in ("zh-en", "en-zh"):
            model = str(self.out / f"{name}-int8")
            for corpus in ("wiki", "tatoeba"):
                data = ["--data", str(self.corpora / f"zh-en-{corpus}" / "valid.tsv.xz"), "--resamples", "0"]
                reverse = ["--reverse"] if name == "en-zh" else []
                finish(self.regard("evaluate", "--model", model, "--device", self.device, *data, *reverse))

    def pairs(self, name: str) -> Iterator[tuple[str, str]]:
        for row in self.rows(name):
            yield row[0], row[1]

    def rows(self, name: str) -> Iterator[list[str]]:
        with lzma.open(self.corpora / name, "rt", encoding="utf-8") as file:
            for n, line in enumerate(file):
                if n == self.lines:
                    return
                yield line.rstrip("\n").split("\t")

    def write(self, name: str, rows: Iterable[tuple[str, ...]]) -> None:
        path = self.out / "text" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")

    def regard(self, *words: str) -> "subprocess.Popen[bytes]":
        print("regard", *words, flush=True)
        return subprocess.Popen([sys.executable, "-m", "regard", *words])


def finish(process: "subprocess.Popen[bytes]") -> None:
    if process.wait():
        raise SystemExit(f"{process.args} ended with {process.returncode}")


def is_sane(made: str, line: str) -> bool:
    """Tell whether a translation is neither empty nor much too long, nor the line itself, nor goes round in circles."""
    zh, en = (made, line) if re.search("[\u4e00-\u9fff]", made) else (line, made)
    words = made.split() if made is en else list(made)
    loops = any(words[n : n + 3] == words[n + 3 : n + 6] == words[n + 6 : n + 9] for n in range(len(words) - 8))
    return made != line and 0.8 < (len(en) + 5) / (len(zh) + 2) < 9 and not loops


if __name__ == "__main__":
    main()

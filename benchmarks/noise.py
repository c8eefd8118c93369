"""What do models do with text that is none: do they loop, fall silent, run on, or lose what is only to be copied?

Seven kinds of noise, drawn by a seed, and plain sentences with a URL, a number or both in them. A target loops where a
string stands in it more often in a row than MOST allows and than in its source; it runs on where it is LONG times as
long as is usual and more; it is silent where it has no character though its source has a letter. A URL or a number is
kept where it stands in the target as it was written. How long a target usually is, bundled sentences tell.
"""

import argparse
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import keep
from rich.console import Console
from rich.table import Table

from regard.pipeline import load_translator
from regard.pipeline.translator import Translation, Translator
from regard.study.repeats import signature
from regard.study.sequences import bundled_pairs

RUN = re.compile(r"(.{1,30}?)\1{3,}", re.DOTALL)  # what stands four times in a row, and more
MOST = 5  # times that a string of some characters may stand in a row; a single character twice as often
LONG = 4
# First and last characters of scripts.
SCRIPTS = (
    *((0x400, 0x4FF), (0x600, 0x6FF), (0x5D0, 0x5EA), (0xE01, 0xE3A), (0x905, 0x939), (0x3041, 0x30FF)),
    *((0xAC00, 0xD7A3), (0x391, 0x3C9), (0x531, 0x556), (0x4E00, 0x9FFF), (0x21, 0x7E), (0x1200, 0x1248)),
)
EMOJI = "😀😂🥰👍🏽👨‍👩‍👧🎉🚀🇨🇳🔥❤️✅☕🐼🌍💡"
MARKUP = (
    *(
        '<div class="a">',
        "</div>",
        "<b>",
        "</b>",
        "&nbsp;",
        "{{name}}",
        "%s",
        "${HOME}",
        "```",
        "\\frac{1}{2}",
        "[x](y)",
    ),
    *(
        '{"key": [1, null]}',
        "for (i = 0; i < n; i++)",
        "SELECT * FROM t;",
        "<!-- -->",
        "<br/>",
        "#include <x.h>",
        "===",
    ),
)
BLANK = (" ", "\t", "\u3000", "\u200b", "\ufeff", "\u00a0", "\x00", "\x07", "\u202e", "")
SLOTS = {
    "zh": (
        *(
            "请访问 {} 了解更多信息。",
            "我的订单号是 {}。",
            "下载地址：{}",
            "他在 {} 上写了一篇文章。",
            "房间号码是 {}，谢谢。",
        ),
        *("这本书一共有 {} 页。", "详情请看 {}。", "密码是 {}。", "公交车 {} 路到这里。", "我们在 {} 见面。"),
    ),
    "en": (
        *(
            "Please visit {} for more information.",
            "My order number is {}.",
            "Download it from {}",
            "He wrote about {}.",
        ),
        *("The room number is {}, thank you.", "This book has {} pages.", "See {} for details.", "The password is {}."),
        *("Bus number {} stops here.", "We will meet at {} again."),
    ),
}


@dataclass(frozen=True)
class Line:
    """A source, its kind, and the strings that its target must hold."""

    kind: str
    text: str
    copied: tuple[str, ...] = ()


def draw_lines(n: int, language: str, seed: int) -> list[Line]:
    """Draw n lines, equally many of each kind."""
    chance = random.Random(seed)
    words = [pair[0].strip("。.?!？！") for pair in bundled_pairs(language, {"zh": "en", "en": "zh"}[language])]
    noise: dict[str, Callable[[], str]] = {
        "scripts": lambda: " ".join(_letters(chance) for _ in range(chance.randint(1, 12))),
        "emoji": lambda: "".join(
            chance.choice([*EMOJI, *chance.sample(words, 2)]) for _ in range(chance.randint(1, 12))
        ),
        "markup": lambda: " ".join(chance.choice([*MARKUP, *words[:9]]) for _ in range(chance.randint(1, 12))),
        "long": lambda: "".join(chance.choices(words, k=chance.randint(20, 120))),
        "repeated": lambda: _repeated(chance, words),
        "blank": lambda: "".join(chance.choices(BLANK, k=chance.randint(0, 9))),
        "shuffled": lambda: _shuffled(chance, words),
    }
    kinds = [*noise, "url", "number", "both"]
    return [_draw(kinds[i % len(kinds)], noise, chance, language) for i in range(n)]


def _draw(kind: str, noise: dict[str, Callable[[], str]], chance: random.Random, language: str) -> Line:
    if kind in noise:
        return Line(kind, noise[kind]())
    copied = {"url": [_url], "number": [_number], "both": [_url, _number]}[kind]
    strings = tuple(draw(chance) for draw in copied)
    return Line(kind, "".join(chance.choice(SLOTS[language]).format(each) for each in strings), strings)


def _letters(chance: random.Random) -> str:
    first, last = chance.choice(SCRIPTS)
    return "".join(chr(chance.randint(first, last)) for _ in range(chance.randint(1, 14)))


def _repeated(chance: random.Random, words: list[str]) -> str:
    unit = chance.choice(
        [chance.choice(words), chance.choice(chance.choice(words)), _letters(chance), "ha", "。", "a "]
    )
    return unit * chance.randint(3, 80)


def _shuffled(chance: random.Random, words: list[str]) -> str:
    characters = list("".join(chance.sample(words, 2)))
    chance.shuffle(characters)
    return "".join(characters)


def _url(chance: random.Random) -> str:
    parts = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(4)]
    path = f"/{parts[1]}/{parts[2]}-{chance.randint(1, 99)}" * chance.randint(0, 1)
    return (
        f"https://www.{parts[0]}.{chance.choice(['com', 'org', 'cn', 'de'])}{path}"
        + f"?q={parts[3]}" * chance.randint(0, 1)
    )


def _number(chance: random.Random) -> str:
    return chance.choice(
        [str(chance.randint(11, 99999)), f"{chance.uniform(1, 999):.2f}", str(chance.randint(10**6, 10**9))]
    )


def longest_run(text: str) -> int:
    """Return how often a string stands in a row; of a single character half of it is counted."""
    return max((len(run[0]) // len(run[1]) // (2 if len(run[1]) == 1 else 1) for run in RUN.finditer(text)), default=1)


def judge(line: Line, found: Translation, usual: float) -> dict[str, bool]:
    """Return which faults a translation has."""
    runs, letters = longest_run(found.text), any(each.isalpha() for each in line.text)
    return {
        "loops": runs > MOST and runs > 1.5 * longest_run(line.text),
        "silent": letters and not found.text.strip(),
        "runs on": len(found.text) > LONG * usual * max(10, len(line.text)),
        "lost": any(each not in found.text for each in line.copied),
    }


def measure(model: Translator, lines: list[Line]) -> tuple[dict[str, dict[str, Any]], list[tuple[str, str, str]]]:
    """Return the faults of each kind of line, and some examples."""
    pairs = bundled_pairs(model.src_lang, model.tgt_lang)
    usual = sum(len(tgt) for _, tgt in pairs) / sum(len(src) for src, _ in pairs)
    began = time.process_time()
    found = model.translate([line.text for line in lines])
    seconds = time.process_time() - began
    rows: dict[str, dict[str, Any]] = {}
    examples = []
    for line, each in zip(lines, found, strict=True):
        row = rows.setdefault(line.kind, {"lines": 0, "loops": 0, "silent": 0, "runs on": 0, "lost": 0})
        row["lines"] += 1
        for fault, is_so in judge(line, each, usual).items():
            row[fault] += is_so
            if is_so:
                examples.append((fault, line.text[:80], each.text[:80]))
    rows["all"] = {name: sum(row[name] for row in rows.values()) for name in next(iter(rows.values()))}
    rows["all"]["CPU s"] = round(seconds, 1)
    return rows, examples


def main() -> None:
    """Draw, translate, count, show and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["zh-en", "en-zh"])
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    results = {}
    for name in given.model:
        model = load_translator(name, given.precision)
        rows, examples = measure(model, draw_lines(given.lines, model.src_lang, given.seed))
        results[name] = rows
        table = Table("kind", *rows["all"], title=name)
        for kind, row in rows.items():
            table.add_row(kind, *(str(row.get(column, "")) for column in rows["all"]))
        Console().print(table)
        for fault in ("loops", "silent", "runs on", "lost"):
            for _, source, target in [each for each in examples if each[0] == fault][:6]:
                Console().print(f"[dim]{fault}[/]  {source!r} → {target!r}", markup=True, soft_wrap=True)
    sign = signature("cpu", models=given.model, precision=given.precision, lines=given.lines, seed=given.seed)
    keep("noise-cpu", {"rows": results, "signature": sign}, given.results)


if __name__ == "__main__":
    main()

"""A process in which one system translates batches that come by its standard input, and says how long it took.

It runs in whichever interpreter has the system: `worker.py SYSTEM OPTIONS`, options as JSON. A request is a line of
JSON with sentences, whose answer is a line of JSON; see `Request` and `Answer` of small_engines.py.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Translate = Callable[[list[str], dict[str, Any]], list[str]]


def marian(options: dict[str, Any]) -> Translate:
    """Open Marian; sentences are ids between underscores and spaces."""
    from pymarian import Translator  # pyright: ignore[reportMissingImports]

    translator = Translator(options["arguments"])
    return lambda lines, more: translator.translate(lines, **more)


def firefox(options: dict[str, Any]) -> Translate:
    """Open Firefox's engine, which takes one text at a time."""
    from fxtranslate import Translator  # pyright: ignore[reportMissingImports]

    vocabulary = Path(options["vocabulary"]).read_bytes()
    shortlist = Path(options["shortlist"]).read_bytes() if options["shortlist"] else None
    translator = Translator(Path(options["model"]).read_bytes(), vocabulary, vocabulary, shortlist)
    return lambda lines, more: [translator.translate(line) for line in lines]


def regard(options: dict[str, Any]) -> Translate:
    """Open our engine; EOS is suppressed."""
    import numpy as np

    from regard import load
    from regard.config import DecodeSettings
    from regard.padding import EOS
    from regard.pipeline.shortlist import Shortlist

    engine: Any = load(options["model"], precision=options["precision"]).engine
    engine.decoder.min_token = EOS + 1
    vocabulary = None
    if options["table"]:
        always = np.arange(EOS + 1, options["first"])
        vocabulary = Shortlist(always, np.load(options["table"]), copies=True).words

    def translate(lines: list[str], more: dict[str, Any]) -> list[str]:
        sources = [[int(word[1:]) for word in line.split()] for line in lines]
        settings = DecodeSettings(**options["decode"], **more)
        found = engine.search_batch(sources, settings, vocabulary=vocabulary)
        return [" ".join(f"_{i}" for i in hypotheses[0].ids) for hypotheses in found]

    return translate


SYSTEMS = {"marian": marian, "firefox": firefox, "regard": regard}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a system prints is no answer
    translate = SYSTEMS[sys.argv[1]](json.loads(sys.argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        wall, cpu = time.perf_counter(), time.process_time()
        said = [translate(lines, more) for lines, more in request]
        spent = time.perf_counter() - wall, time.process_time() - cpu
        answers.write(json.dumps([*spent, said]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()

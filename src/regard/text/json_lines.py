"""Pairs from lines of JSON."""

import json
from collections.abc import Iterator
from typing import Any

from regard.text.lines import read_lines
from regard.text.pair import Pair, make_pair


def read_json_lines(source: str, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Reads an object from each line: with `src` and `tgt`, `source` and `target`, or a `translation` by language."""
    names = (("src", "tgt"), ("source", "target"), (src_lang, tgt_lang))
    for number, line in enumerate(read_lines(source), start=1):
        where = f"{source}, line {number}"
        if not line.strip():
            yield make_pair("", "", where)
            continue
        row = _object(line, where)
        row = row.get("translation", row)
        sides = _sides(row, names) if isinstance(row, dict) else None
        if sides is None:
            raise ValueError(
                f"{where}: an object must have strings for src and tgt, source and target, or the languages "
                f"{src_lang} and {tgt_lang} (data.src_lang, data.tgt_lang), got {line[:80]!r}"
            )
        yield make_pair(*sides, where)


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: each line must be one JSON object, got {line[:60]!r} ({error})") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: each line must be one JSON object, got {line[:60]!r}")
    return row


def _sides(row: dict[str, Any], names: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    for src, tgt in names:
        if isinstance(row.get(src), str) and isinstance(row.get(tgt), str):
            return row[src], row[tgt]
    return None

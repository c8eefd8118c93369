"""Fill the tables and the signature of a study's page from the JSON that the study printed.

    regard study position-probe --device cuda --json > result.json
    python tools/refresh_docs.py docs/studies/position-probe.md result.json

A page is prose with markers. What stands between them is replaced; everything else is left as it is:

    <!-- study: position-probe -->        which study's results may fill this page
    <!-- table: stream --> … <!-- /table -->
    <!-- signature --> … <!-- /signature -->

The result is `{"study": NAME, "signature": {"command": …, "commit": …, …}, "tables": {NAME: TABLE, …}}`; further keys
are ignored. A TABLE is `{"columns": [...], "rows": [[...], ...]}` with an optional `title` above and `note` below.
Cells are strings, shown as they are, numbers or null. Sentences that quote a number are not touched: read them again.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MARKED = re.compile(r"(<!-- (table|signature)(?:: ([\w-]+))? -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)
STUDY = re.compile(r"<!-- study: ([\w-]+) -->")
NUMBER = re.compile(r"[+−-]?[\d,.]+")
EMPTY = {"", "–"}
FIRST = ("command", "regard", "commit", "machine", "settings")  # of a signature, in this order, before the rest


def refresh(page: str, result: dict[str, Any]) -> str:
    """Return the page with every marked table and the signature replaced; raise ValueError where they do not match."""
    study, tables = result["study"], result["tables"]
    named = STUDY.search(page)
    if named is None or named[1] != study:
        expected = f"<!-- study: {study} -->"
        raise ValueError(f"the page must say {expected}, got {named[0] if named else 'no such line'}: is it another's?")
    on_page = [match[3] for match in MARKED.finditer(page) if match[2] == "table"]
    if sorted(on_page) != sorted(tables):
        raise ValueError(f"page and result must have the same tables, got {sorted(on_page)} and {sorted(tables)}")

    def fill(match: re.Match[str]) -> str:
        filled = markdown_table(tables[match[3]]) if match[2] == "table" else signature(result["signature"])
        return f"{match[1]}\n{filled}\n\n{match[5]}"

    return MARKED.sub(fill, page)


def markdown_table(table: dict[str, Any]) -> str:
    """Return a table as Markdown; columns of numbers are aligned to the right."""
    columns, rows = table["columns"], [[_text(cell) for cell in row] for row in table["rows"]]
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row must have {len(columns)} cells, one for each column, got {len(row)}: {row}")
    rules = ["---:" if _is_numeric([row[i] for row in rows]) else "---" for i in range(len(columns))]
    lines = [f"| {' | '.join(cells)} |" for cells in ([_text(name) for name in columns], rules, *rows)]
    title, note = table.get("title"), table.get("note")
    return "\n\n".join([*([f"**{title}**"] if title else []), "\n".join(lines), *([note] if note else [])])


def signature(facts: dict[str, Any]) -> str:
    """Return one line with all that could move a number: the command first, then versions, machine and settings."""
    names = [name for name in FIRST if name in facts] + [name for name in facts if name not in FIRST]
    shown = [f"`{facts[name]}`" if name == "command" else f"{name} {_text(facts[name])}" for name in names]
    return f"Signature: {', '.join(shown)}."


def _text(cell: Any) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, list):
        return " ".join(_text(each) for each in cell)
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    text = f"{cell:.4g}" if isinstance(cell, float) else str(cell)
    return text.replace("|", "\\|").replace("\n", " ")


def _is_numeric(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell not in EMPTY]
    return bool(filled) and all(NUMBER.match(cell) for cell in filled)


def main(arguments: Sequence[str] | None = None) -> None:
    """Rewrite a page in place, whole or not at all."""
    parser = argparse.ArgumentParser(description="Fill the tables of a study's page from its --json.")
    parser.add_argument("page", type=Path, help="the page, such as docs/studies/position-probe.md")
    parser.add_argument("result", type=Path, help="what regard study NAME --json printed")
    chosen = parser.parse_args(arguments)
    try:
        text = refresh(chosen.page.read_text(encoding="utf-8"), json.loads(chosen.result.read_text(encoding="utf-8")))
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"{chosen.page}: {f'the result has no {error}' if isinstance(error, KeyError) else error}")
    draft = chosen.page.with_name(f".{chosen.page.name}.draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, chosen.page)


if __name__ == "__main__":
    main()

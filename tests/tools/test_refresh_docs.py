"""A study's JSON fills the tables of its page and leaves the prose alone."""

import json
import re
from pathlib import Path

import pytest

from tools import refresh_docs as tool

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "studies").glob("*.md"))

PAGE = """# Is position lost?
<!-- study: position-probe -->

A probe reads it with R² 0.94 at the embedding.

<!-- table: stream -->

| stack | old |
| --- | ---: |
| encoder | 0.11 |

<!-- /table -->

Between the tables.

<!-- table: updates -->
<!-- /table -->

<!-- signature -->
Signature: old.
<!-- /signature -->
"""
RESULT = {
    "study": "position-probe",
    "signature": {
        "regard": "0.1.0",
        "commit": "f03f32d",
        "torch": "2.13.0+cpu",
        "machine": "AMD EPYC",
        "seeds": [0, 1, 2],
        "settings": "732dfef41b69",
        "command": "regard study position-probe --quick",
    },
    "tables": {
        "stream": {
            "title": "Where is position? zh-en, 165 pairs",
            "columns": ["stack", "where", "R²", "n"],
            "rows": [["encoder", "embedding", "0.94 ± 0.01", 1583], ["decoder", "a|b", "−0.00 ± 0.01", None]],
            "note": "R² on held-out sentences.",
        },
        "updates": {"columns": ["stack", "loss"], "rows": [["encoder", 0.123456]]},
    },
    "stacks": "further keys are ignored",
}
FILLED = """# Is position lost?
<!-- study: position-probe -->

A probe reads it with R² 0.94 at the embedding.

<!-- table: stream -->

**Where is position? zh-en, 165 pairs**

| stack | where | R² | n |
| --- | --- | ---: | ---: |
| encoder | embedding | 0.94 ± 0.01 | 1,583 |
| decoder | a\\|b | −0.00 ± 0.01 | – |

R² on held-out sentences.

<!-- /table -->

Between the tables.

<!-- table: updates -->

| stack | loss |
| --- | ---: |
| encoder | 0.1235 |

<!-- /table -->

<!-- signature -->

Signature: `regard study position-probe --quick`, regard 0.1.0, commit f03f32d, machine AMD EPYC, \
settings 732dfef41b69, torch 2.13.0+cpu, seeds 0 1 2.

<!-- /signature -->
"""


def files(tmp_path, page=PAGE, **changes):
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    (tmp_path / "result.json").write_text(json.dumps({**RESULT, **changes}), encoding="utf-8")
    return [str(tmp_path / "page.md"), str(tmp_path / "result.json")]


def test_tables_and_signature_are_replaced_and_nothing_else(tmp_path):
    tool.main(files(tmp_path))
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == FILLED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.md", "result.json"]


def test_filling_a_page_again_changes_nothing():
    assert tool.refresh(FILLED, RESULT) == FILLED


@pytest.mark.parametrize(
    ("page", "changes", "message"),
    [
        (PAGE, {"study": "subspaces"}, "must say <!-- study: subspaces -->, got <!-- study: position-probe -->"),
        (PAGE.replace("<!-- study: position-probe -->", ""), {}, "got no such line"),
        (PAGE, {"tables": {"stream": RESULT["tables"]["stream"]}}, r"got \['stream', 'updates'\] and \['stream'\]"),
        (PAGE.replace("table: updates", "table: update"), {}, r"got \['stream', 'update'\]"),
        (
            PAGE,
            {"tables": {**RESULT["tables"], "updates": {"columns": ["a", "b"], "rows": [["x"]]}}},
            r"must have 2 cells, one for each column, got 1: \['x'\]",
        ),
    ],
)
def test_a_page_that_does_not_fit_is_left_as_it_is(tmp_path, page, changes, message):
    arguments = files(tmp_path, page, **changes)
    with pytest.raises(SystemExit, match=message):
        tool.main(arguments)
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page


def test_a_result_without_tables_is_named(tmp_path):
    arguments = files(tmp_path)
    Path(arguments[1]).write_text('{"study": "position-probe"}', encoding="utf-8")
    with pytest.raises(SystemExit, match="the result has no 'tables'"):
        tool.main(arguments)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_of_a_study_is_a_template(path):
    page = path.read_text(encoding="utf-8")
    names = [match[3] for match in tool.MARKED.finditer(page) if match[2] == "table"]
    assert tool.STUDY.search(page) and names and len(set(names)) == len(names)
    assert page.count("<!-- signature -->") == page.count("<!-- /signature -->") == 1
    assert page.count("<!-- table: ") == page.count("<!-- /table -->") == len(names)
    for match in tool.MARKED.finditer(page):
        start = "| " if match[2] == "table" else "Signature: "
        assert re.search(rf"^{re.escape(start)}", match[4], re.MULTILINE), f"{path.name}: {match[1]} is empty"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_filled_from_a_result_with_its_tables(path):
    page = path.read_text(encoding="utf-8")
    names = [match[3] for match in tool.MARKED.finditer(page) if match[2] == "table"]
    tables = {name: {"columns": ["table"], "rows": [[f"this is {name}"]]} for name in names}
    filled = tool.refresh(page, {"study": tool.STUDY.search(page)[1], "signature": {"commit": "1"}, "tables": tables})
    assert tool.MARKED.sub("", filled) == tool.MARKED.sub("", page)
    assert all(filled.count(f"| this is {name} |") == 1 for name in names)

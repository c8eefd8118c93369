"""The notebooks run from top to bottom, and lie here with outputs that any viewer shows."""

import re
from pathlib import Path

import pytest

from regard.zoo import present
from tests.notebook.notebooks import NOTEBOOKS, VIEW, executed, outputs, read

LARGEST_MIB = 1.5
# Places on a machine; a fraction or a link within the text is none.
PLACES = "home|Users|root|tmp|work|usr|opt|var|mnt|private|workspace"
PATHS = re.compile(rf"(?<![\w.:/])/(?:{PLACES})/|\b[A-Za-z]:\\|\.\./shared")
NAMES = [path.stem for path in NOTEBOOKS]


@pytest.fixture(params=NOTEBOOKS, ids=NAMES)
def path(request):
    return request.param


def written(notebook):
    """Gives all words of the outputs, and no pictures."""
    for output in outputs(notebook):
        yield output.get("text", "")
        yield from (str(value) for kind, value in output.get("data", {}).items() if not kind.startswith("image/"))


def test_there_are_three():
    assert NAMES == ["01-the-parts", "02-translate-and-look", "03-positions"]


def test_it_runs_and_shows_the_view(path):
    if not {"zh-en", "en-zh"} <= set(present()):
        pytest.skip("the bundled models are not in this copy")
    notebook = executed(read(path))
    shown = [output for output in outputs(notebook) if VIEW in output.get("data", {})]
    assert shown, "no cell shows the view"
    assert all("image/png" in output.data for output in shown)


def test_it_was_kept_as_it_ran(path):
    notebook = read(path)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), "run python -m tests.notebook.notebooks"
    kinds = {output.output_type for output in outputs(notebook)}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]


def test_it_is_small_and_holds_no_dead_widgets(path):
    notebook = read(path)
    assert path.stat().st_size < LARGEST_MIB * 2**20
    assert "widgets" not in notebook.metadata and all(not cell.metadata for cell in notebook.cells)
    assert not [output for output in outputs(notebook) if VIEW in output.get("data", {})]
    pictures = [output for output in outputs(notebook) if "image/png" in output.get("data", {})]
    assert len(pictures) >= 5, "a viewer that runs no code would show too little"


def test_it_names_no_place_on_a_machine(path):
    everything = [cell.source for cell in read(path).cells] + list(written(read(path)))
    assert not [found[0] for text in everything for found in PATHS.finditer(text)]
    assert not [text for text in everything if str(Path.home()) in text or "not built" in text]


def test_a_place_on_a_machine_would_be_seen():
    places = ("", "home", "ada"), ("in ", "tmp", "abc"), ("'", "root", ".cache'"), ("..", "shared", "corpora")
    for text in (*("/".join(parts) for parts in places), r"C:\Users"):
        assert PATHS.search(text), text
    for text in ("q·k/√d", "https://a.example/home/x", "0.5/tmp", "runs/mine"):
        assert not PATHS.search(text), text

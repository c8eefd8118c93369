"""The order of the rooms, and the budget that keeps the house one that a newcomer can hold (tools/budget.py counts)."""

import ast
import re
from pathlib import Path

import pytest

from tools.budget import SOURCE, count

# In the order in which data meets them; `__init__` and `__main__` are doors, not rooms.
ORDER = (
    "extras shapes config toml atomic device threads terminal autograd padding data mask batch position "
    "kernels ops attention native model build search engine checkpoint foreign zoo exchange pipeline score train trace "
    "markup align plot clean qa study serve notebook cli"
)
ROOMS = tuple(ORDER.split(" "))
DOORS = {"__init__", "__main__"}
FILES = sorted(SOURCE.rglob("*.py"))
COMPILED = sorted([*SOURCE.rglob("*.h"), *SOURCE.rglob("*.cpp")])
BUDGET = count()
# Files of features that came after the rooms were laid out, one subject each.
NEW_SUBJECTS = {
    "autograd.py",
    "cli/align.py",
    "data/fingerprint.py",
    "data/sentences.py",
    "data/words.py",
    "extras.py",
    "markup/__init__.py",
    "markup/parse.py",
    "markup/place.py",
    "markup/translate.py",
    "pipeline/glossary.py",
    "pipeline/live.py",
    "pipeline/shortlist_learning.py",
    "search/constrained.py",
    "search/constraint.py",
    "pipeline/recovery.py",
    "pipeline/copies.py",
    "search/loops.py",
    "serve/lessons.py",
    "serve/libretranslate.py",
    "serve/pytorch.py",
    "serve/studies.py",
    "toml.py",
    "shapes.py",
    "checkpoint/arrays.py",
    "cli/distill.py",
    "cli/export.py",
    "cli/native.py",
    "exchange/__init__.py",
    "exchange/outgoing.py",
    "exchange/to_ctranslate2.py",
    "exchange/to_transformers.py",
    "exchange/tokenizer_json.py",
    "clean/__init__.py",
    "clean/classifier.py",
    "clean/cross_entropy.py",
    "clean/duplicates.py",
    "clean/evidence.py",
    "clean/judging.py",
    "clean/language.py",
    "clean/learning.py",
    "clean/lengths.py",
    "clean/lexicon.py",
    "clean/noise.py",
    "clean/reading.py",
    "clean/report.py",
    "clean/rules.py",
    "clean/workers.py",
    "cli/clean.py",
    "cli/import_.py",
    "data/model_file.py",
    "data/pieces.py",
    "foreign/__init__.py",
    "foreign/architecture.py",
    "foreign/folder.py",
    "foreign/incoming.py",
    "foreign/pickled.py",
    "foreign/vocabulary.py",
    "native/build.py",
    "native/libraries.py",
    "study/bottleneck.py",
    "study/linear_probe.py",
    "study/norms.py",
    "study/permutation.py",
    "study/residuals.py",
    "serve/limits.py",
    "serve/memory.py",
    "study/position_views.py",
    "threads.py",
    "train/distillation.py",
    "trace/attention_map.py",
    "trace/first_layer.py",
    "trace/generation.py",
    "trace/head_choice.py",
    "trace/hugging_face.py",
    "trace/native_replay.py",
}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_rooms(path: Path) -> list[str]:
    rooms = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} uses a relative import in line {node.lineno}"
            # `from regard import mask` names a room, `from regard import __version__` a door's own word
            names = [f"regard.{alias.name}" for alias in node.names] if node.module == "regard" else [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms += [name.split(".")[1] for name in names if name.startswith("regard.") and "__" not in name]
    return rooms


def short(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", FILES, ids=short)
def test_imports_come_from_this_room_or_above(path):
    here = room_of(path)
    if here in DOORS:
        return
    assert here in ROOMS, f"{here} is not a room of the house"
    below = [room for room in imported_rooms(path) if ROOMS.index(room) > ROOMS.index(here)]
    assert not below, f"{short(path)} imports from below: {below}"


def first_words(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    first = text.split("\n")[0]
    return first.removeprefix("// ") if first.startswith("// ") else ""


@pytest.mark.parametrize("path", [*FILES, *COMPILED], ids=short)
def test_a_file_begins_with_its_subject_and_has_at_most_400_lines(path):
    assert first_words(path), f"{short(path)} does not say what lives there"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", COMPILED, ids=short)
def test_compiled_files_know_their_own_room_only_and_keep_to_120_columns(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) <= 120
    own = [line.split('"')[1] for line in lines if line.startswith('#include "')]
    assert all((path.parent / name).exists() and "/" not in name for name in own), own


def test_no_room_without_a_meaning():
    names = {path.stem for path in FILES} | {path.parent.name for path in FILES}
    assert not names & {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager"}


def test_few_files_of_a_good_size():
    assert len(BUDGET.files.keys() - NEW_SUBJECTS) <= 180
    assert len(BUDGET.short_files) < 0.12 * len(BUDGET.files), BUDGET.short_files


def test_functions_are_short_but_not_chopped():
    assert BUDGET.p90 <= 31
    # A kernel is one function by nature, and so is a set of routes.
    long = {name: lines for name, lines in BUDGET.functions.items() if lines > 40}
    assert not [name for name in long if not name.startswith(("kernels/", "serve/routes"))], long


def test_a_class_name_exists_once():
    assert BUDGET.repeated_classes == {}


def test_imports_stand_at_the_top_unless_what_they_need_is_optional():
    assert len(BUDGET.nested_imports) <= 30, BUDGET.nested_imports


def test_nobody_reaches_through_the_front_door():
    assert [place for place in BUDGET.upward_imports if not place.startswith("__init__.py")] == []


def test_no_tags_of_a_specification_that_is_not_here():
    tagged = [short(path) for path in FILES if _tag(path.read_text(encoding="utf-8"))]
    assert tagged == []


def _tag(text: str) -> bool:
    return re.search(r"\bS[1-9]\.[1-9]\b", text) is not None


def test_the_order_is_enforced(tmp_path):
    upside_down = tmp_path / "mask.py"
    upside_down.write_text("from regard.attention import ATTENTION\nimport regard.cli\nfrom regard import study\n")
    assert imported_rooms(upside_down) == ["attention", "cli", "study"]


def test_the_budget_is_counted(tmp_path):
    (tmp_path / "one.py").write_text("class A: pass\nimport regard\ndef f():\n    import json\n    return json\n")
    (tmp_path / "two.py").write_text("from regard import __version__\nclass A: pass\n" + "\n" * 60)
    found = count(tmp_path)
    assert found.files == {"one.py": 5, "two.py": 62} and found.short_files == ["one.py"]
    assert found.functions == {"one.py:3 f": 3} and found.repeated_classes == {"A": ["one.py", "two.py"]}
    assert found.nested_imports == ["one.py:4"] and found.upward_imports == ["one.py:2"]

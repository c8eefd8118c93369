"""The recipe for general text: what its script writes is what its settings read, and nothing held out is among it."""

import lzma
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from regard.config import Settings, parse_settings

FOLDER = Path(__file__).parent.parent / "recipes/general"
CONFIGS = {name: tomllib.loads((FOLDER / f"{name}.toml").read_text()) for name in ("both", "zh-en", "en-zh")}
PAIRS = {
    "zh-en-tatoeba": [("他来了。", "He came."), ("我喜欢音乐，他也喜欢。", "I like music, and so does he.")],
    "zh-en-games": [("打开！", "Open it!")],
    "zh-en-cedict": [("跑", "to run"), ("氵", '"water" radical in Chinese characters')],
}


@pytest.fixture(scope="module")
def recipe():
    spec = spec_from_file_location("general_recipe", FOLDER / "recipe.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def text(recipe, tmp_path):
    """A folder of text that the script made of tiny corpora."""
    parallel = ("tatoeba", "games", "docs", "manuals", "software", "law", "bible")
    for name in (f"zh-en-{each}" for each in (*parallel, "wiki", "cedict")):
        write(tmp_path / name, ("train.tsv.xz", "valid.tsv.xz", "pairs.tsv.xz"), PAIRS.get(name, [("一", "one")]))
    for name in ("de", "fr"):
        write(tmp_path / f"{name}-en-tatoeba", ("train.tsv.xz",), [(name, "Hello."), (name, name)])
    for name in ("mono-en", "mono-zh"):
        write(tmp_path / name, ("text.txt.xz",), [("line",)])
    out = tmp_path / "out"
    out.mkdir()
    recipe.Recipe(tmp_path, out, "cpu", None, []).write_text()
    return out / "text"


def write(folder, names, rows):
    folder.mkdir()
    for name in names:
        with lzma.open(folder / name, "wt", encoding="utf-8") as file:
            file.writelines("\t".join(row) + "\n" for row in rows)


def test_the_settings_are_whole_and_read_what_the_script_writes(text):
    made = {f"text/{name}" for name in ("mono.zh-made.tsv", "made-mono.en.tsv", "mono.en-made.tsv", "made-mono.zh.tsv")}
    made |= {"text/everyday.en-made.tsv"} | {f"text/{path.name}" for path in text.iterdir()}
    for name, table in CONFIGS.items():
        parse_settings(Settings, table)
        data = table["data"]
        assert {*data["train"], *data["valid"]} <= made, name
        assert len(data["weights"]) == len(data["train"]) == len(data.get("tags", data["train"]))


def test_nothing_that_is_held_out_is_learned():
    for name, table in CONFIGS.items():
        exclude = set(table["data"]["exclude"])
        assert exclude == set(CONFIGS["both"]["data"]["exclude"]), name
        for corpus in ("games", "docs", "manuals", "software", "law", "bible"):
            assert {f"zh-en-{corpus}/valid.tsv.xz", f"zh-en-{corpus}/test.tsv.xz"} <= exclude
        assert {"./../held-out.txt", "zh-en-wiki/valid.tsv.xz", "zh-en-tatoeba/test-hans.tsv.xz"} <= exclude


def test_the_dictionary_and_short_sentences_lose_what_nobody_types(text):
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in text.iterdir()}
    assert lines["words.tsv"] == ["跑\trun"] and lines["words-back.tsv"] == ["run\t跑"]
    assert lines["short.tsv"] == ["他来了\tHe came", "打开\tOpen it"]
    assert lines["lower-back.tsv"] == ["he came\t他来了", "open it\t打开"]
    assert lines["everyday.en"] == ["Hello.", "de", "fr"]


@pytest.mark.parametrize(
    ("made", "line", "sane"),
    [
        ("他来了。", "He came.", True),
        ("He came.", "他来了。", True),
        ("他", "He came because it was raining and nobody else had been there.", False),
        ("Hello", "Hello", False),
        ("no no no no no no no no no no", "不不不不不不不", False),
    ],
)
def test_a_translation_is_kept_if_it_may_be_one(recipe, made, line, sane):
    assert recipe.is_sane(made, line) is sane

"""The recipes: whole settings that any corpus folder fits into, each with the command that runs it."""

from pathlib import Path

import pytest
import torch

from regard.train.run import resolve_settings
from regard.train.start import DataOptions, TrainOptions, start_run

FOLDER = Path(__file__).parent.parent / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))
ZH_EN = [path for path in RECIPES if "zh" in path.stem]


def made(path, tmp_path, corpora=Path("corpora")):
    sources = DataOptions((), (), (), None, None)
    return start_run(
        tmp_path / "run", sources, TrainOptions(config=path, corpora=corpora), resume=False, overwrite=False
    )


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_whole(path, tmp_path):
    found = made(path, tmp_path)
    assert resolve_settings(found, torch.device("cpu"))
    assert f"regard train --config recipes/{path.name} --corpora CORPORA --out runs/{path.stem}" in path.read_text()
    if found.data.form == "pairs":
        assert found.data.valid, "a recipe names its validation text"
        assert found.data.test, "a recipe names its test text"
    for source in (*found.data.train, *found.data.valid, *found.data.test):
        assert all(file.startswith("corpora/") for file in source.split(","))


@pytest.mark.parametrize("path", ZH_EN, ids=lambda path: path.stem)
def test_bundled_models_learn_neither_from_what_is_shown_nor_from_research_text(path, tmp_path):
    data = made(path, tmp_path).data
    held_out = FOLDER / "held-out.txt"
    assert str(held_out) in data.exclude
    assert "介绍一下西安" in held_out.read_text(encoding="utf-8").splitlines()
    assert not any("multi30k" in source for source in data.train)
    for source in data.train:
        folder = Path(source).parent
        if folder.name not in {"zh-en-cedict", "zh-en-tatoeba", "zh-en-back"}:
            assert {str(folder / "valid.tsv.xz"), str(folder / "test.tsv.xz")} <= set(data.exclude)


def test_paths_of_a_file_lie_beside_it_or_among_the_corpora(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[data]\ntrain = ["./a.tsv", "b/b.en,b/b.de", "/c/c.tsv"]\nsrc_lang="x"\ntgt_lang="y"\n'
    )
    found = made(tmp_path / "mine.toml", tmp_path).data
    assert found.train == (str(tmp_path / "a.tsv"), "corpora/b/b.en,corpora/b/b.de", "/c/c.tsv")
    plain = made(tmp_path / "mine.toml", tmp_path, corpora=None).data
    assert plain.train[1] == "b/b.en,b/b.de"

"""Models are found by name, described without being loaded, and chosen by language."""

import pytest

from regard.serve.models import Shelf
from tests.serve.server import make_folder, new_shelf


@pytest.fixture(scope="module")
def several(tmp_path_factory, home):
    folder = tmp_path_factory.mktemp("several")
    pairs = {"one": ("zh", "en"), "two": ("en", "zh"), "three": ("de", "en")}
    return new_shelf([make_folder(folder, name, languages=pair) for name, pair in pairs.items()], home)


def test_a_model_is_loaded_once_and_when_it_is_needed(folders, home):
    shelf = new_shelf(folders, home)
    assert [model.loaded for model in shelf.models()] == [False, False]
    assert shelf.open("tiny") is shelf.open("tiny")
    assert [model.loaded for model in shelf.models()] == [True, False]
    with pytest.raises(ValueError, match=r"'tin'.*did you mean 'tiny'"):
        shelf.open("tin")


def test_runs_are_called_by_their_folders_and_never_twice_the_same(tmp_path, home):
    first, second = make_folder(tmp_path / "a" / "mine", "model"), make_folder(tmp_path / "b", "mine")
    assert list(new_shelf([first, tmp_path / "b" / "mine"], home).books) == ["mine", "mine-2"]
    assert list(new_shelf([first.parent], home).books) == ["mine"]
    assert second.exists()


def test_bundled_models_stand_behind_own_ones(folders, tmp_path):
    zoo = make_folder(tmp_path, "zh-en").parent
    make_folder(zoo, "en-zh", languages=("en", "zh"))
    assert list(Shelf([str(folders[0])], home=zoo).books) == ["tiny", "zh-en", "en-zh"]
    assert list(Shelf(["zh-en"], home=zoo).books) == ["zh-en", "en-zh"]
    assert Shelf([str(folders[0])], home=zoo).pick("zh", "en", "") == "tiny"


def test_models_are_picked_by_languages_and_scripts(several):
    assert several.pick("zh-CN", "en-GB", "") == "one"
    assert several.pick("de", None, "") == "three"
    assert several.pick("auto", None, "你好") == "one"
    assert several.pick("auto", "zh", "hello") == "two"
    for source, target, text in (("fr", "en", ""), ("auto", "en", "hello"), ("zh", "fr", "")):
        with pytest.raises(ValueError, match=f"no model translates from {source}"):
            several.pick(source, target, text)
    with pytest.raises(ValueError, match="tells no language, got 'привет'"):
        several.pick("auto", "en", "привет")


def test_latin_letters_are_anybodys_where_nobody_reads_english(tmp_path, home):
    shelf = new_shelf([make_folder(tmp_path, "german", languages=("de", "en"))], home)
    assert shelf.pick("auto", "en", "guten Tag") == "german"

"""Models are named, described without being loaded, and chosen by language."""

import pytest

from regard.serve.models import ModelRegistry
from tests.serve.server import make_folder, make_registry


@pytest.fixture(scope="module")
def several(tmp_path_factory, home):
    folder = tmp_path_factory.mktemp("several")
    pairs = {"one": ("zh", "en"), "two": ("en", "zh"), "three": ("de", "en")}
    return make_registry([make_folder(folder, name, languages=pair) for name, pair in pairs.items()], home)


def test_a_model_is_loaded_once_and_when_it_is_needed(folders, home):
    models = make_registry(folders, home)
    assert [model.loaded for model in models.describe()] == [False, False]
    assert models.open("tiny") is models.open("tiny")
    assert [model.loaded for model in models.describe()] == [True, False]
    with pytest.raises(ValueError, match=r"'tin'.*did you mean 'tiny'"):
        models.open("tin")


def test_runs_are_named_by_their_folders_and_names_are_unique(tmp_path, home):
    first, second = make_folder(tmp_path / "a" / "mine", "model"), make_folder(tmp_path / "b", "mine")
    assert list(make_registry([first, tmp_path / "b" / "mine"], home).entries) == ["mine", "mine-2"]
    assert list(make_registry([first.parent], home).entries) == ["mine"]
    assert second.exists()


def test_own_models_come_before_bundled_ones(folders, tmp_path):
    zoo = make_folder(tmp_path, "zh-en").parent
    make_folder(zoo, "en-zh", languages=("en", "zh"))
    assert list(ModelRegistry([str(folders[0])], home=zoo).entries) == ["tiny", "zh-en", "en-zh"]
    assert list(ModelRegistry(["zh-en"], home=zoo).entries) == ["zh-en", "en-zh"]
    assert ModelRegistry([str(folders[0])], home=zoo).pick("zh", "en", "") == "tiny"


def test_models_are_picked_by_languages_and_scripts(several):
    assert several.pick("zh-CN", "en-GB", "") == "one"
    assert several.pick("de", None, "") == "three"
    assert several.pick("auto", None, "你好") == "one"
    assert several.pick("auto", "zh", "hello") == "two"
    for source, target, text in (("fr", "en", ""), ("auto", "en", "hello"), ("zh", "fr", "")):
        with pytest.raises(ValueError, match=f"no model translates from {source}"):
            several.pick(source, target, text)
    with pytest.raises(ValueError, match="cannot detect the language of 'привет'"):
        several.pick("auto", "en", "привет")


def test_latin_script_is_any_language_if_no_model_reads_english(tmp_path, home):
    models = make_registry([make_folder(tmp_path, "german", languages=("de", "en"))], home)
    assert models.pick("auto", "en", "guten Tag") == "german"

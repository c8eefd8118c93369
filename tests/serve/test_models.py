"""Models are named, described without being loaded, and chosen by language."""

import pytest

from regard.serve.models import ModelRegistry
from regard.serve.routes_translate import choose_model
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


def test_a_model_that_the_user_named_comes_before_bundled_ones_of_a_better_family(tmp_path):
    zoo = make_folder(tmp_path / "zoo", "zh-en").parent
    mine = make_folder(tmp_path, "mine", "recurrent")
    assert ModelRegistry([str(mine)], home=zoo).pick("zh", "en", "") == "mine"


@pytest.mark.parametrize("languages", [("zh", "tgt"), ("src", "en"), ("src", "tgt")])
def test_a_language_without_a_name_may_be_any(tmp_path, languages):
    zoo = make_folder(tmp_path / "zoo", "zh-en").parent
    models = ModelRegistry([str(make_folder(tmp_path, "mine", languages=languages))], home=zoo)
    assert models.unnamed() == ["mine"]
    assert models.pick("zh", "en", "") == models.pick("auto", "en", "你好") == models.pick("auto", None, "你") == "mine"
    assert choose_model(models, "mine", "zh", "en", "你好") == "mine"
    assert choose_model(models, "zh-en", "zh", "en", "你好") == "zh-en"


@pytest.mark.parametrize(
    "scores",
    ['{"test": 5}', '{"test": {"bleu": "<b>"}}', '{"valid": {"bleu": NaN}}', "[]", "7", '{"test": {"bleu": true}}'],
)
def test_scores_that_are_no_numbers_are_left_out(tmp_path, home, caplog, scores):
    folder = make_folder(tmp_path, "odd")
    (folder / "scores.json").write_text(scores, "utf-8")
    (found,) = make_registry([folder], home).describe()
    assert found.scores.bleu is None
    assert scores == "[]" or "ignored the scores" in caplog.text

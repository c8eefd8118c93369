"""The models that come with this copy, whichever they are; a stand-in zoo shows that the tests would see them."""

import pytest

import regard
from regard.checkpoint import read_settings
from regard.zoo import HOME, ZOO
from regard.zoo.card import lacks, read_card
from regard.zoo.catalogue import catalogue
from regard.zoo.find import present

from ..train.tiny import trained_once
from .standin import make_zoo

LARGEST_MIB = 48
SENTENCES = {"zh": "我喜欢音乐。", "en": "I like music."}


def test_all_together_are_small():
    mib = sum(path.stat().st_size for name in ZOO for path in (HOME / name).rglob("*") if path.is_file()) / 2**20
    assert mib <= LARGEST_MIB


def test_nothing_lies_in_the_zoo_that_is_not_in_the_table():
    folders = {path.name for path in HOME.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= ZOO.keys()


@pytest.mark.parametrize("name", present())
def test_a_card_is_complete(name):
    assert lacks(read_card(HOME / name)) == []


@pytest.mark.parametrize("name", present())
def test_a_model_is_what_the_table_says(name):
    made, bundled = read_settings(HOME / name / "config.json"), ZOO[name]
    assert (made.data.src_lang, made.data.tgt_lang, made.model.family) == (
        bundled.src_lang,
        bundled.tgt_lang,
        bundled.family,
    )


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", present())
def test_a_model_translates(name, precision):
    found = regard.load(name, precision).translate(SENTENCES[ZOO[name].src_lang])[0].text
    assert any("\u4e00" <= letter <= "\u9fff" for letter in found) == (ZOO[name].tgt_lang == "zh")
    assert "⁇" not in found


def test_the_catalogue_describes_what_is_there(tmp_path_factory, tmp_path):
    trained = trained_once(tmp_path_factory)
    home = make_zoo(tmp_path, trained, "en-zh", "zh-en")
    found = catalogue(home)
    assert [(each.name, each.src_lang, each.tgt_lang) for each in found] == [
        ("zh-en", "zh", "en"),
        ("en-zh", "en", "zh"),
    ]
    assert {each.parameters for each in found} == {5968}
    for each in found:
        folder = home / each.name
        assert each.mib * 2**20 == sum(path.stat().st_size for path in folder.iterdir())
        assert each.measured_on == "test"
        assert each.licence == "that of its texts: (to be filled in)"
    assert catalogue(tmp_path / "none") == []


def test_a_model_without_test_scores_gives_those_of_validation(tmp_path_factory, tmp_path):
    home = make_zoo(tmp_path, trained_once(tmp_path_factory), "zh-en")
    (home / "zh-en" / "scores.json").write_text('{"valid": {"bleu": 3.5}}')
    assert [(each.bleu, each.measured_on) for each in catalogue(home)] == [(3.5, "valid")]
    (home / "zh-en" / "scores.json").unlink()
    assert [(each.bleu, each.measured_on) for each in catalogue(home)] == [(None, None)]

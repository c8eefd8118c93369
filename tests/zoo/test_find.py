"""A path or a name becomes a model folder; what is neither is answered with what there is."""

import shutil

import pytest

import regard
from regard.zoo import HOME, ZOO
from regard.zoo.find import find_model, listed, named, present

from ..train.tiny import trained_once
from .standin import make_zoo


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_zoo(tmp_path_factory.mktemp("zoo"), trained_once(tmp_path_factory), "zh-en", "en-zh")


def test_only_models_that_are_there_are_present(home, tmp_path):
    assert list(present(home)) == ["zh-en", "en-zh"]
    assert listed(home) == "zh-en (zh → en), en-zh (en → zh)"
    assert present(tmp_path) == {}


def test_a_name_is_a_bundled_model(home):
    assert find_model("zh-en", home) == home / "zh-en"
    assert named("en-zh", home) == home / "en-zh"


def test_a_path_that_exists_wins_over_a_name(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(home / "en-zh", tmp_path / "zh-en")
    assert find_model("zh-en", home).resolve() == tmp_path / "zh-en"
    assert regard.load("zh-en").src_lang == "en"


def test_an_unknown_name_is_answered_with_the_nearest_and_all(home):
    message = (
        "zh-eng: there is no such model folder; unknown model 'zh-eng': did you mean 'zh-en'. valid are zh-en, en-zh"
    )
    with pytest.raises(ValueError, match=message):
        find_model("zh-eng", home)
    with pytest.raises(ValueError, match=r"unknown model 'zh-en-recurrent'.*valid are zh-en, en-zh"):
        named("zh-en-recurrent", home)  # it is in the table, and not in this copy


def test_a_copy_without_models_says_so(tmp_path):
    with pytest.raises(ValueError, match="zh-en: there is no such model folder; and no model 'zh-en' comes with"):
        find_model("zh-en", tmp_path)
    with pytest.raises(ValueError, match="no models come with this copy of regard, got 'zh-en'"):
        named("zh-en", tmp_path)


def test_the_zoo_lies_inside_the_package():
    assert HOME.is_relative_to(next(iter(regard.__path__)))
    assert all(f"{each.src_lang}-{each.tgt_lang}" in name for name, each in ZOO.items())

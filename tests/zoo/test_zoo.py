"""A path or a name becomes a model folder; what is neither is answered with what there is.

The model that suits a text, and texts that none suits.
The models that come with this copy, whichever they are; a stand-in zoo shows that the tests would see them.
"""

import shutil

import pytest

import regard
from regard.checkpoint import read_settings
from regard.zoo import (
    HOME,
    PEEK,
    ZOO,
    catalogue,
    find_model,
    lacks,
    listed,
    named,
    peek,
    pick,
    present,
    read_card,
    script_language,
)
from tests.train.tiny import trained_once
from tests.zoo.standin import make_zoo


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


@pytest.fixture
def pick_home(tmp_path):
    """Empty folders: picking looks at names alone."""
    for name in reversed(ZOO):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("介绍一下西安", "zh"),
        ("我用 PyTorch 写 Transformer。", "zh"),
        ("I like music.", "en"),
        ("What does 介绍 mean?", "en"),
        ("Ça va, Zoë?", "en"),
        ("これは本です", "ja"),
        ("東京へ行く", "ja"),
        ("안녕하세요", "ko"),
        ("Привет, мир", None),
        ("Привет, Tom, как дела", None),
        ("12:30 – 42 %", None),
    ],
)
def test_the_script_tells_the_language(text, language):
    assert script_language(text) == language


@pytest.mark.parametrize(("text", "name"), [("介绍一下西安", "zh-en"), ("Introduce Xi'an", "en-zh")])
def test_the_text_s_script_picks_and_a_transformer_is_preferred(pick_home, text, name):
    assert pick(None, None, [text], pick_home) == name


def test_said_languages_pick_whatever_the_text_is(pick_home):
    assert pick("zh", None, ["Xi'an"], pick_home) == "zh-en"
    assert pick("en", "zh", ["介绍"], pick_home) == "en-zh"
    assert pick("zh_CN", "en-GB", ["12"], pick_home) == "zh-en"
    assert pick(None, "en", ["介绍"], pick_home) == "zh-en"


def test_a_recurrent_model_is_picked_where_there_is_no_other(pick_home):
    (pick_home / "zh-en").rmdir()
    assert pick("zh", "en", [], pick_home) == "zh-en-recurrent"


def test_nothing_can_be_translated_by_any_model(pick_home):
    assert pick(None, None, [], pick_home) in ZOO
    assert pick(None, None, ["", "  "], pick_home) in ZOO


@pytest.mark.parametrize(
    ("src", "tgt", "text", "message"),
    [
        (None, None, "これは本です", r"no bundled model translates from ja: there are zh-en \(zh → en\), en-zh"),
        ("de", "en", "Haus", r"no bundled model translates from de to en: there are zh-en"),
        (None, "zh", "介绍", r"no bundled model translates from zh to zh: there are"),
        (
            None,
            None,
            "Привет",
            r"the language cannot be told from the script of the text, got 'Привет': there are zh-en .*--from",
        ),
        (None, None, "12", r"got '12'.*--model"),
    ],
)
def test_what_no_model_suits_is_answered_with_those_there_are(pick_home, src, tgt, text, message):
    with pytest.raises(ValueError, match=message):
        pick(src, tgt, [text], pick_home)


def test_a_copy_without_models_says_so_in_pick(tmp_path):
    with pytest.raises(ValueError, match="no models come with this copy of regard: name a model folder with --model"):
        pick("zh", "en", ["介绍"], tmp_path)


def test_peeking_reads_to_the_first_letters_and_loses_no_line():
    given = ["", "12.", "介绍", "hello", ""]
    left = iter(given)
    seen, lines = peek(left)
    assert seen == ["", "12.", "介绍"]
    assert next(left) == "hello"  # no more was read
    assert list(lines) == ["", "12.", "介绍", ""]
    assert [list(part) for part in peek([])] == [[], []]


def test_peeking_ends():
    seen, lines = peek("12" for _ in range(PEEK + 5))
    assert len(seen) == PEEK
    assert len(list(lines)) == PEEK + 5


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

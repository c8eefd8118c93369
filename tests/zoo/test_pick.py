"""The model that suits a text, and texts that none suits."""

import pytest

from regard.zoo import ZOO
from regard.zoo.pick import PEEK, peek, pick, script_language


@pytest.fixture
def home(tmp_path):
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
def test_the_text_s_script_picks_and_a_transformer_is_preferred(home, text, name):
    assert pick(None, None, [text], home) == name


def test_said_languages_pick_whatever_the_text_is(home):
    assert pick("zh", None, ["Xi'an"], home) == "zh-en"
    assert pick("en", "zh", ["介绍"], home) == "en-zh"
    assert pick("zh_CN", "en-GB", ["12"], home) == "zh-en"
    assert pick(None, "en", ["介绍"], home) == "zh-en"


def test_a_recurrent_model_is_picked_where_there_is_no_other(home):
    (home / "zh-en").rmdir()
    assert pick("zh", "en", [], home) == "zh-en-recurrent"


def test_nothing_can_be_translated_by_any_model(home):
    assert pick(None, None, [], home) in ZOO
    assert pick(None, None, ["", "  "], home) in ZOO


@pytest.mark.parametrize(
    ("src", "tgt", "text", "message"),
    [
        (None, None, "これは本です", r"no bundled model translates from ja: there are zh-en \(zh → en\), en-zh"),
        ("de", "en", "Haus", r"no bundled model translates from de to en: there are zh-en"),
        (None, "zh", "介绍", r"no bundled model translates from zh to zh: there are"),
        (None, None, "Привет", r"the script of the text tells no language, got 'Привет': there are zh-en .*--from"),
        (None, None, "12", r"got '12'.*--model"),
    ],
)
def test_what_no_model_suits_is_answered_with_those_there_are(home, src, tgt, text, message):
    with pytest.raises(ValueError, match=message):
        pick(src, tgt, [text], home)


def test_a_copy_without_models_says_so(tmp_path):
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

"""Marked-up text in translation: nothing is lost, tags are balanced, and without them it is the plain translation."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.markup import strip_markup, translate_marked
from regard.markup.parse import parse
from regard.markup.translate import CrossAttention, token_spans
from regard.pipeline.glossary import Glossary
from tests.pipeline.test_translator import make_translator, small_model

TAGS = ["<b>", "</b>", "<i>", "</i>", "<x/>", "<u class='a'>", "</u>"]
ALONE = re.compile(r"<[^<>]*>")


@pytest.fixture(scope="module")
def random_translator():
    return make_translator(small_model(), method="greedy", max_ratio=1.0, max_extra=2)


@pytest.fixture(scope="module")
def en_zh():
    return regard.load("en-zh", "int8")


def bare(text):
    """Gives a text without white space."""
    return "".join(text.split())


def pairs(text):
    """Counts the pairs of tags in a text, by their opening ones."""

    def of(elements):
        return [name for each in elements for name in [each.opening.strip()] * bool(each.closing) + of(each.inner)]

    return Counter(name for each in parse(text, "tags").texts for name in of(each.elements))


@settings(max_examples=40)
@given(st.lists(st.sampled_from([*TAGS, "abc", " ", "de", "face. ", "你好", "。", "\n"]), max_size=10).map("".join))
def test_any_text_keeps_its_tags_and_its_translation(random_translator, text):
    plain = random_translator.translate(strip_markup(text, "tags"))[0].text
    found = translate_marked(random_translator, text, markup="tags")[0].text
    assert bare(ALONE.sub("", found)) == bare(plain)
    assert Counter(ALONE.findall(found)) == Counter(ALONE.findall(text))
    assert pairs(found) >= pairs(text)


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["{n}", "%s", "<b>", "</b>", "abc", " ", "bad. "]), max_size=8).map("".join))
def test_placeholders_are_there_once_even_if_the_model_cannot_write_their_names(random_translator, text):
    found = translate_marked(random_translator, text)[0].text
    wanted = [each for text in parse(text, "all").texts for each in text.placeholders.values()]
    for each, times in Counter(wanted).items():
        assert found.count(each) >= times
    assert found.count("{n}") == text.count("{n}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Click <b>Save</b> to continue", r".*<b>.?保存.?</b>.*继续"),
        ("Hello {name}, you have %d messages", r"[^{]*\{name\}[^%]*%d[^%]*"),
        ("<p>My friend</p><p>I like music.</p>", r"<p>我的朋友</p><p>我喜欢音乐。</p>"),
        ("Open https://a.org/b?c=d now.", r"[^h]*https://a\.org/b\?c=d[^h]*"),
        ("<b>My friend.</b>", r"<b>我的朋友。</b>"),
    ],
)
def test_real_translations(text, expected, en_zh):
    assert re.fullmatch(expected, translate_marked(en_zh, text)[0].text)


def test_text_without_markup_is_translated_as_ever(en_zh):
    texts = ["", "I like music.", " a < b  ", "One. Two.\nThree."]
    assert translate_marked(en_zh, texts) == en_zh.translate(texts)


def test_n_best_translations_all_have_their_tags(en_zh):
    chosen = replace(en_zh.settings, beam=3, n_best=3)
    (found,) = translate_marked(en_zh, "I <b>like</b> {what}.", chosen)
    assert len(found.alternatives) == 3 and found.text == found.alternatives[0].text
    for each in found.alternatives:
        assert each.text.count("<b>") == each.text.count("</b>") == each.text.count("{what}") == 1


def test_a_glossary_holds_between_tags(en_zh):
    glossary = Glossary({"music": "乐曲"}, en_zh.tokenizer)
    assert "<b>乐曲</b>" in translate_marked(en_zh, "I like <b>music</b>.", glossary=glossary)[0].text


def test_attention_is_a_share_of_the_source_for_each_token(en_zh):
    ids = en_zh.tokenizer.encode("I like music.", "src")
    written = en_zh.tokenizer.encode("我喜欢音乐。", "tgt")
    shares = CrossAttention(en_zh).shares(ids, written)
    assert shares.shape == (len(written), len(ids))
    assert shares.sum(1) == pytest.approx(1.0, abs=1e-5)


def test_tokens_cover_their_text(en_zh):
    for text in ("我喜欢音乐。", "a 鿬 b", "Hello {name}"):
        ids = en_zh.tokenizer.encode(text, "tgt")
        spans = token_spans(en_zh.tokenizer, ids, text)
        assert "".join(text[a:b] for a, b in spans) == bare(text)


def test_what_cannot_be_done_is_refused(en_zh):
    with pytest.raises(ValueError, match=r"unknown kind of markup 'html': .*valid are tags, placeholders, all"):
        translate_marked(en_zh, "x", markup="html")
    with pytest.raises(ValueError, match="marked-up text needs beam or greedy search, got the method 'sample'"):
        translate_marked(en_zh, "x", replace(en_zh.settings, method="sample"))

"""Glossaries: what is a term of a text, which tokens write its translation, and that translations keep to it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.engine.native import NativeEngine
from regard.engine.plain import PlainEngine
from regard.pipeline.glossary import Glossary, GlossaryTerm, TargetVocabulary, is_within_word, read_terms
from regard.search.constraint import Constraint, ConstraintAutomaton
from tests.pipeline.test_translator import TOKENIZER, make_translator, small_model


@pytest.fixture(scope="module")
def zh_en():
    return regard.load("zh-en", "int8")


@pytest.fixture(scope="module")
def en_zh():
    return regard.load("en-zh", "int8")


def found(glossary, text):
    """Gives the terms of a text as they are written in the glossary."""
    return [each.term.source for each in glossary.find(text)]


def read(tmp_path, text, tokenizer=TOKENIZER, **how):
    path = tmp_path / "terms.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Glossary.read(path, tokenizer, **how)


def test_a_file_is_read_with_comments_blank_lines_and_both_columns(tmp_path):
    text = "\ufeff# ours\r\nabc\tde|fa\r\n\r\nbad\tcab\tpreferred\r\n  \nhead\tface\t\n\\#a\tb\n"
    path = tmp_path / "terms.tsv"
    path.write_text(text, encoding="utf-8", newline="")
    assert [(each.source, each.variants, each.use, each.where) for each in read_terms(str(path))] == [
        ("abc", ("de", "fa"), "forced", f"{path}:2"),
        ("bad", ("cab",), "preferred", f"{path}:4"),
        ("head", ("face",), "forced", f"{path}:6"),
        ("#a", ("b",), "forced", f"{path}:7"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("abc", r"terms.tsv:2: a line must be a term, a tab .*got 'abc'"),
        ("a\tb\tforced\td", r"terms.tsv:2: a line must be .*got 'a\\tb\\tforced\\td'"),
        ("a\tb\tforce", r"terms.tsv:2: unknown use of a term 'force': did you mean 'forced'"),
        ("a\tb||c", r"terms.tsv:2: a term and its translations must not be empty, got 'a' and \['b', '', 'c'\]"),
        ("\tb", r"terms.tsv:2: .*must not be empty, got '' and \['b'\]"),
        ("a\t", r"terms.tsv:2: .*must not be empty, got 'a' and \[''\]"),
        ("bad\tc\tpreferred", r"terms.tsv:2: a term must be forced or preferred, got 'bad' as both"),
        ("a\tbé", r"terms.tsv:2: .*what the model can write, got 'bé' for 'a'"),
    ],
)
def test_a_bad_line_is_named(line, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, f"bad\tcab\n{line}\n")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.tsv: no such file"):
        Glossary.read(tmp_path / "none.tsv", TOKENIZER)
    with pytest.raises(ValueError, match=r"terms\.tsv, line 1"):
        read(tmp_path, b"\xff\xfea\tb\n" * 2)


def test_lines_of_the_same_term_are_one(tmp_path):
    glossary = read(tmp_path, "a\tb\na\tb\na\tc|b\n")
    assert len(glossary) == 1 and glossary.find("a")[0].term.variants == ("b", "c")


def test_a_glossary_can_be_turned_round(tmp_path):
    glossary = read(tmp_path, "a\tbad|cab\nd\tcab\n", reverse=True)
    assert found(glossary, "bad cab") == ["bad", "cab"]
    assert glossary.find("cab")[0].term.variants == ("a", "d")


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        (["save"], "Save it, SAVE it, saved, resave, save-as", ["save"] * 3),
        (["Apple", "apple"], "Apple and apple and APPLE", ["Apple", "apple", "apple"]),
        (["IT"], "it is IT, Italy", ["IT"]),
        (["file", "file system"], "file systems, file system, file", ["file", "file system", "file"]),
        (["a b", "b c"], "a b c", ["a b"]),
        (["C++", "C"], "C++ or C, C+", ["C++", "C", "C"]),
        (["foo"], "foo_bar foo.bar 'foo'", ["foo", "foo"]),
        (["西安"], "西安市在西安附近", ["西安", "西安"]),
        (["西", "西安", "安"], "西安西", ["西安", "西"]),
        (["API"], "使用API接口，ＡＰＩ和APIs", ["API", "API"]),
        (["服務器"], "服务器和服務器", ["服務器", "服務器"]),
        (["i̇x", "straße"], "STRASSE Straße", ["straße"]),
        (["two  words"], "two\n words", ["two  words"]),
        (["whole"], "whole", ["whole"]),
        (["longer than the text"], "longer", []),
        (["a"], "", []),
    ],
)
def test_which_terms_a_text_has(terms, text, expected, zh_en):
    assert found(Glossary(dict.fromkeys(terms, "x"), zh_en.tokenizer), text) == expected


TEXT = st.text("ab C西安-", max_size=20)


@given(st.lists(st.text("ab C西安-", min_size=1, max_size=4).filter(str.strip), min_size=1, max_size=8), TEXT)
def test_terms_are_found_as_by_trying_all_of_them_at_each_place(terms, text):
    glossary = Glossary(dict.fromkeys(terms, "a"), TOKENIZER)
    plain, at, expected = " ".join(text.split()), 0, []
    known = [" ".join(term.split()) for term in terms]
    while at < len(plain):
        fits = [
            term
            for term in known
            if (
                plain[at : at + len(term)] == term
                or (term == term.lower() and plain[at : at + len(term)].lower() == term)
            )
            and not is_within_word(plain, at)
            and not is_within_word(plain, at + len(term))
        ]
        if fits:
            expected.append((at, at + max(map(len, fits))))
        at += max(map(len, fits), default=1)
    assert [(start, stop) for start, stop, _ in glossary.find(text)] == expected


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        ({"西安": "Xi'an"}, "介绍西安的城墙。西安", "介绍 Xi'an 的城墙。Xi'an"),
        ({"server": "伺服机"}, "The  server, ok", "The 伺服机, ok"),
        ({"b": ["d", "e"]}, "a b B c", "a d d c"),
        ({"x": "y"}, "a b", "a b"),
        ({}, "", ""),
    ],
)
def test_a_text_is_rewritten_with_its_terms_in_translation(terms, text, expected):
    assert Glossary(terms, regard.load("zh-en", "int8").tokenizer).rewritten(text) == expected


def test_preferred_terms_are_not_rewritten():
    assert Glossary([GlossaryTerm("a", ("b",), "preferred")], TOKENIZER).rewritten("a c") == "a c"


def test_a_term_is_not_said_twice(zh_en):
    """Searched for in the source as it is, the translation would be "I like music. melody."."""
    glossary = Glossary({"音乐": ["melody", "melodies"]}, zh_en.tokenizer)
    text = zh_en.translate("我喜欢音乐。", glossary=glossary)[0].text
    assert "melod" in text and "music" not in text


def test_ten_thousand_terms_are_looked_up_and_not_tried(monkeypatch):
    glossary = Glossary({f"a{number}b": "c" for number in range(10_000)}, TOKENIZER)
    tried = []
    monkeypatch.setattr("regard.pipeline.glossary.is_within_word", lambda text, place: tried.append(place) or False)
    assert len(glossary.find("a17b " * 200)) == 200
    assert len(tried) < 1_000


def says(tokenizer, phrase, text):
    """Tells whether the tokens of a text meet a constraint of one phrase."""
    return ConstraintAutomaton([Constraint((phrase,))]).is_met(tokenizer.encode(text, "tgt"))


def test_the_tokens_of_a_variant_are_known_wherever_it_stands(zh_en, en_zh):
    """A tokenizer marks the first word of a text, and those after spaces and brackets, in ways of their own."""
    for translator, variant, texts, others in (
        (zh_en, "server", ["server", "the server.", "(server)", "servers", "my servers run"], ["observer", "no"]),
        (zh_en, "Li Bai", ["Li Bai", "by Li Bai's hand"], ["Li Baily", "Li"]),
        (en_zh, "保存", ["保存", "请保存。", "（保存）", "Save保存"], ["保"]),
    ):
        phrases = TargetVocabulary(translator.tokenizer).phrases(variant)
        for text in texts:
            assert any(says(translator.tokenizer, phrase, text) for phrase in phrases), (variant, text)
        for text in others:
            assert not any(says(translator.tokenizer, phrase, text) for phrase in phrases), (variant, text)
    (begun, *_) = TargetVocabulary(zh_en.tokenizer).beginnings("server")
    for text, expected in (("Server rooms.", True), ("Yes. Server rooms.", True), ("The Server", False)):
        assert says(zh_en.tokenizer, begun, text) == expected
    assert (
        TargetVocabulary(zh_en.tokenizer).beginnings("Server")
        == TargetVocabulary(en_zh.tokenizer).beginnings("保存")
        == []
    )
    exact = TargetVocabulary(zh_en.tokenizer).phrases("server", endings=False)
    assert not any(says(zh_en.tokenizer, phrase, "my servers run") for phrase in exact)


def test_translations_contain_their_terms_and_others_stay_as_they_are(zh_en):
    texts = ["服务器在西安。", "我喜欢音乐。", "", "西安！西安？我在西安。", "西安"]
    glossary = Glossary({"西安": "Chang'an", "服务器": ["mainframe", "big iron"]}, zh_en.tokenizer)
    for changes in ({"method": "greedy"}, {"beam": 3, "n_best": 3}):
        settings = replace(zh_en.settings, **changes)
        plain, bound = (zh_en.translate(texts, settings, glossary=each) for each in (None, glossary))
        assert [bound[n] for n in (1, 2)] == [plain[n] for n in (1, 2)]
        for n, times in ((0, 1), (3, 3), (4, 1)):
            assert all(each.text.count("Chang'an") == times for each in bound[n].alternatives), bound[n]
        assert "mainframe" in bound[0].text or "big iron" in bound[0].text


def test_a_preferred_term_is_used_where_it_pays(zh_en, monkeypatch):
    text = "西安很大。"
    for bonus, expected in ((0.0, False), (30.0, True)):
        monkeypatch.setattr(Glossary, "bonus", bonus)
        glossary = Glossary([GlossaryTerm("西安", ("Chang'an",), "preferred")], zh_en.tokenizer)
        assert ("Chang'an" in zh_en.translate(text, glossary=glossary)[0].text) == expected


def test_both_engines_find_the_same_with_a_glossary(monkeypatch):
    native = regard.load("zh-en")
    if not isinstance(native.engine, NativeEngine):
        pytest.skip("there is no compiled code")
    plain = replace(native, engine=PlainEngine(native.model))
    glossary, texts = Glossary({"西安": "Chang'an"}, native.tokenizer), ["介绍西安"]
    for settings in (replace(native.settings, method="greedy"), replace(native.settings, beam=2, n_best=2)):
        one, other = (each.translate(texts, settings, glossary=glossary) for each in (native, plain))
        assert [each.text for each in one] == [each.text for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)


def test_random_models_write_whatever_they_are_told():
    translator = make_translator(small_model(), method="beam", beam=2, max_ratio=0.0, max_extra=3)
    glossary = Glossary({"abc": "hello", "bad": ["face", "cab"], "d": "dd"}, TOKENIZER)
    for text, expected in (("abc", ["hello"]), ("bad abc bad", ["hello"]), ("d d d", ["dd"]), ("bad", ["face", "cab"])):
        (translation,) = translator.translate(text, glossary=glossary)
        assert any(each in translation.text for each in expected), (text, translation.text)


def test_sampling_is_refused_by_name(zh_en):
    settings = replace(zh_en.settings, method="sample")
    with pytest.raises(ValueError, match="a glossary needs beam or greedy search, got the method 'sample'"):
        zh_en.translate("西安", settings, glossary=Glossary({"北京": "Peking"}, zh_en.tokenizer))

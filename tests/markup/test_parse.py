"""What is a tag, a placeholder or text, and how tags belong together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.markup.parse import DEEPEST, Kind, lexemes, matching_tags, parse, restore, strip_markup


def shape(elements):
    """Gives elements as nested lists."""
    return [
        (each.opening, each.start, each.stop, each.closing, *([shape(each.inner)] * bool(each.inner)))
        for each in elements
    ]


def only(text, kind: Kind = "all"):
    """Gives the one text of a document without block tags."""
    document = parse(text, kind)
    assert document.kept == ["", ""]
    return document.texts[0]


@pytest.mark.parametrize(
    ("text", "plain", "elements"),
    [
        ("Click <b>Save</b> now", "Click Save now", [("<b>", 6, 10, "</b>")]),
        ("<b>a <i>b</i></b>c", "a bc", [("<b>", 0, 3, "</b>", [("<i>", 2, 3, "</i>")])]),
        ("<b>a<i>b</b>c</i>", "abc", [("<b>", 0, 2, "</b>", [("<i>", 1, 1, "")]), ("</i>", 3, 3, "")]),
        ("<B>a</b>", "a", [("<B>", 0, 1, "</b>")]),
        ("<b>a", "a", [("<b>", 0, 0, "")]),
        ("a</b>", "a", [("</b>", 1, 1, "")]),
        ('a<x id="1"/>b<img src="a>b">c', "abc", [('<x id="1"/>', 1, 1, ""), ('<img src="a>b">', 2, 2, "")]),
        ("a <b> c </b> d", "a c d", [("<b> ", 2, 3, " </b>")]),
        ("a <x/> b", "a b", [("<x/> ", 2, 2, "")]),
        ("a<b> c </b>d", "a c d", [("<b>", 1, 4, "</b>")]),
        ("a<!-- <b> -->b<?php x ?>", "ab", [("<!-- <b> -->", 1, 1, ""), ("<?php x ?>", 2, 2, "")]),
        ("3&nbsp;km", "3 km", [("&nbsp;", 1, 1, "")]),
        ("<b></b>", "", [("<b>", 0, 0, "</b>")]),
        ("a < b, 1 <3, <, </, <>, < b>, <1>", "a < b, 1 <3, <, </, <>, < b>, <1>", []),
        ("&amp;&lt;&eacute; & &x; &amp", "&<é & &x; &amp", []),
        ("", "", []),
    ],
)
def test_tags_and_entities(text, plain, elements):
    found = only(text, "tags")
    assert (found.plain, shape(found.elements)) == (plain, elements)


def test_text_between_block_tags_stands_by_itself():
    document = parse("<p>One <b>two</b></p>\n<ul><li>x<br/>y</li></ul><script>var a='<b>';</script>z", "all")
    assert [each.plain for each in document.texts if each.plain.strip()] == ["One two", "x", "y", "z"]
    same = [restore(each.plain, each.placeholders) for each in document.texts]
    assert document.join([text.strip() for text in same]) == (
        "<p>One two</p>\n<ul><li>x<br/>y</li></ul><script>var a='<b>';</script>z"
    ).replace("</p>\n", "</p>")


@pytest.mark.parametrize(
    ("text", "placeholders"),
    [
        ("Hello {name}, {0} and {user.name}", ["{name}", "{0}", "{user.name}"]),
        ("{n, plural, one {# file} other {# files}}!", ["{n, plural, one {# file} other {# files}}"]),
        ("${HOME} {{count}} $(x) $HOME $5 #{n}", ["${HOME}", "{{count}}", "$(x)", "$HOME", "#{n}"]),
        ("%s of %1$d, %-5.2f, %ld, %(key)s, %%, %1, %n", ["%s", "%1$d", "%-5.2f", "%ld", "%(key)s", "%%", "%1", "%n"]),
        ("50% discount, 100%, 5%d, % d, %x1 {see below} {", []),
        ("https://a.org/b?c=d. www.b.org, (ftp://c.d/e)", ["https://a.org/b?c=d", "www.b.org", "ftp://c.d/e"]),
        ("ask me.you+x@mail.example.org.", ["me.you+x@mail.example.org"]),
        ("file_{n}.txt v{a} {w}x{h} %s%s 「{n}」", ["file_{n}.txt", "v{a}", "{w}x{h}", "%s%s", "{n}"]),
        ("<code>rm -rf</code> and <kbd>Ctrl</kbd>", ["<code>rm -rf</code>", "<kbd>Ctrl</kbd>"]),
    ],
)
def test_placeholders(text, placeholders):
    found = only(text)
    assert list(found.placeholders.values()) == placeholders
    assert all(name not in text and name in found.plain for name in found.placeholders)
    assert restore(found.plain, found.placeholders) == text


def test_names_that_stand_in_are_new():
    assert list(only("X1 and N2 {a}").placeholders) == ["Z1"]
    every = " ".join(f"{letter}7" for letter in "XNZQWKVYJRMPTSDGHLCFBAEIOU")
    assert list(only(every + " X1 {a} {b}").placeholders) == ["X2", "X3"]


def test_a_kind_takes_its_own_only():
    text = "<b>{a}</b> &amp;"
    assert only(text, "placeholders").plain == "<b>X1</b> &amp;"
    assert only(text, "tags").plain == "{a} &"
    assert strip_markup(text) == "{a} &"


def test_deep_nesting_ends_somewhere():
    run = lexemes("<b>" * 1000 + "x" + "</b>" * 1000, "tags")
    assert len(matching_tags(run)) == DEEPEST
    assert only("<b>" * 1000 + "x" + "</b>" * 1000).plain == "x"


FRAGMENTS = [
    "<b>",
    "</b>",
    "<i x='y>'>",
    "</i>",
    "<x/>",
    "<p>",
    "</p>",
    "<",
    ">",
    "&amp;",
    "&",
    "&nbsp;",
    " ",
    "a",
    "é",
    "{n}",
    "%s",
]
FRAGMENTS += ["<!--", "-->", "<code>", "</code>", '"', "X1", "\n", "{", "}"]
MARKED = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)


@given(MARKED, st.sampled_from(["tags", "placeholders", "all"]))
def test_nothing_is_lost(text, kind):
    assert "".join(each.written for each in lexemes(text, kind)) == text
    document = parse(text, kind)
    for each in document.texts:
        check_nested(each.elements, 0, len(each.plain))


def check_nested(elements, start, stop):
    """Asserts that elements lie side by side within some characters."""
    for each in elements:
        assert start <= each.start <= each.stop <= stop
        check_nested(each.inner, each.start, each.stop)
        start = each.stop


@pytest.mark.parametrize(
    "text", ["<b>", '<a "', "<code>", "<!--", "{a,", "a.b-c@", "&amp", "{", "a_", "</b>", "http://", "{x} "]
)
def test_long_odd_texts_are_read_in_one_pass(text):
    """Ten thousand of a kind: what reads on to the end from each of them would not come back."""
    assert len(parse(text * 10_000, "all").texts) == 1

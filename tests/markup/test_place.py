"""Tags go around the words that attended to those that they stood around, nested as they were."""

import numpy as np
import pytest

from regard.markup.parse import parse
from regard.markup.place import (
    AttendedPart,
    PlacedElement,
    Placer,
    TextAttention,
    best_stretch,
    word_shares,
    words_of,
)
from regard.markup.translate import Writer


def place(text, target, links):
    """Writes a translation with tags, given which target words attend to which source words, all words at spaces."""
    (marked,) = parse(text, "tags").texts
    tokens, words = words_of(marked.plain, []), words_of(target, [])
    shares = np.zeros((len(words), len(tokens)), np.float32)
    for word, token in links:
        shares[word, token] = 1
    part = AttendedPart(0, marked.plain, tokens, words, shares, len)
    return Writer(target, marked).write(
        Placer(marked.plain, target, lambda: TextAttention([part])).place(marked.elements)
    )


SAME = [(n, n) for n in range(9)]


@pytest.mark.parametrize(
    ("text", "target", "links", "expected"),
    [
        ("a <b>c</b> d", "x y z", SAME[:3], "x <b>y</b> z"),
        ("a <b>c</b> d", "x y z", [(0, 1), (1, 0), (2, 2)], "<b>x</b> y z"),
        ("a <b>c d</b> e", "x y z w", [(0, 1), (1, 0), (2, 2), (3, 3)], "<b>x y z</b> w"),
        ("<b>a</b> <i>c</i>", "x y", [(0, 1), (1, 0)], "<i>x</i> <b>y</b>"),
        ("<b>a <i>c</i></b> d", "x y z", [(0, 1), (1, 0), (2, 2)], "<b><i>x</i> y</b> z"),
        ("<b>a c.</b>", "x y z.", [], "<b>x y z.</b>"),
        ("<b><i>a</i> c</b>", "x y", [(0, 1), (1, 0)], "<b>x <i>y</i></b>"),
        ("a <x/>c d", "x y z", [(0, 1), (1, 0), (2, 2)], "<x/>x y z"),
        ("a<x/> c d", "x y z", [(0, 1), (1, 0), (2, 2)], "x y<x/> z"),
        ("<x/>a c<y/>", "x y", [(0, 1), (1, 0)], "<x/>x y<y/>"),
        ("a <x/><b>c</b>", "x y", SAME[:2], "x <x/><b>y</b>"),
        ("a <b>c</b><x/> d", "x y z", SAME[:3], "x <b>y</b><x/> z"),
        ("a <b>c: </b>d", "x y: z", SAME[:4], "x <b>y:</b> z"),
        ("a <b></b>c", "x y", SAME[:2], "x <b></b>y"),
        ("3&nbsp;a", "x y", SAME[:2], "x&nbsp;y"),
        ("<b>a</b> c", "", [], "<b></b>"),
        ("<b>a</b> c", "x y", [], "x y<b></b>"),
        ("1 &lt; <b>a</b>", "1 < x", SAME[:3], "1 &lt; <b>x</b>"),
        ("a <b>c", "x y", SAME[:2], "x <b>y"),
    ],
)
def test_where_tags_go(text, target, links, expected):
    assert place(text, target, links) == expected


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.0, 1.0, 0.4, 0.0], (1, 2)),  # an article after its noun is not in it
        ([0.9, 0.1, 0.9], (0, 3)),
        ([0.9, 0.0, 0.0, 0.0, 0.9, 0.9], (4, 6)),
        ([0.0, 0.2, 0.1], (1, 2)),
        ([None, 0.9, None, 0.9, None], (1, 4)),
        ([0.9, -1.0, 0.9, 0.9], (2, 4)),
        ([None, -1.0, 0.0], (0, 0)),
        ([], (0, 0)),
    ],
)
def test_the_best_stretch(shares, expected):
    assert best_stretch(shares) == expected


def test_words_are_tokens_where_no_spaces_are():
    text = "点击保存 the e-mail (x)."
    tokens = [(0, 2), (2, 4), (5, 8), (9, 10), (10, 15), (16, 19), (19, 20)]
    assert [text[a:b] for a, b in words_of(text, tokens)] == ["点击", "保存", "the", "e-mail", "(", "x", ")", "."]


def test_a_word_attends_as_its_tokens_do():
    shares = word_shares([(0, 4), (5, 6)], [(0, 2), (2, 4), (5, 6)], np.array([[1, 0], [0, 1], [0, 1]], np.float32))
    assert shares.tolist() == [[0.5, 0.5], [0, 1]]


def test_what_overlaps_is_written_side_by_side():
    (marked,) = parse("<b>a</b><i>c</i>", "tags").texts
    one, two = marked.elements
    assert Writer("xyz", marked).write([PlacedElement(one, 0, 2), PlacedElement(two, 1, 3)]) == "<b>xy</b><i>z</i>"

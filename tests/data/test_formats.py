"""Corpora: every format gives the same pairs, and every mistake is named with its place."""

import gzip
import json
import tracemalloc
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import files, formats
from regard.data.cleaning import Status, scan
from regard.data.formats import check_sources, read_pairs, split_source
from regard.data.normalise import normalise
from tests.data.corpora import any_text

SENTENCE = any_text("ab介绍<&>\"'{}é，。 \\").map(normalise)
PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), max_size=5)


def read(*sources, langs=("zh", "en")):
    return [(pair.src, pair.tgt) for pair in read_pairs([str(source) for source in sources], *langs)]


def unit(*sides):
    return (
        '<tu><prop type="x">y</prop>'
        + "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in sides)
        + "</tu>"
    )


def as_tmx(pairs):
    units = "".join(unit(("EN-gb", escape(tgt)), ("zh", escape(src))) for src, tgt in pairs)
    return f'<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><header/><body>{units}</body></tmx>'


def with_keys(src, tgt):
    return lambda pairs: "".join(json.dumps({src: a, tgt: b, "id": 3}) + "\n" for a, b in pairs)


WRITERS = {
    "pairs.tsv": lambda pairs: "".join(f"{src}\t{tgt}\n" for src, tgt in pairs),
    "more.txt": lambda pairs: "".join(f"{src}\t{tgt}\tCC-BY 2.0\t#1\n" for src, tgt in pairs),
    "short.jsonl": with_keys("src", "tgt"),
    "long.json": with_keys("source", "target"),
    "by_language.jsonl": with_keys("zh", "en"),
    "translation.jsonl": lambda pairs: "".join(
        json.dumps({"translation": {"en": tgt, "zh": src}}, ensure_ascii=False) + "\n" for src, tgt in pairs
    ),
    "memory.tmx": as_tmx,
}


@pytest.mark.parametrize("name", WRITERS)
@given(pairs=PAIRS)
def test_what_was_written_is_read(tmp_path_factory, name, pairs):
    # XML has no place for some signs, escaped or not.
    pairs = [tuple("".join(c for c in side if c < "\ufffe") for side in pair) for pair in pairs]
    path = tmp_path_factory.mktemp("corpus") / name
    path.write_text(WRITERS[name](pairs), encoding="utf-8", newline="")
    assert read(path) == [tuple(map(normalise, pair)) for pair in pairs]


@given(pairs=PAIRS)
def test_aligned_files_are_read_side_by_side(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("aligned")
    (folder / "a.zh").write_text("".join(src + "\n" for src, _ in pairs), encoding="utf-8", newline="")
    (folder / "a.en.gz").write_bytes(gzip.compress("".join(tgt + "\n" for _, tgt in pairs).encode()))
    assert read(f"{folder}/a.zh,{folder}/a.en.gz") == pairs


def test_sources_follow_each_other_and_pairs_know_their_place(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\n\nc\td\n")
    (tmp_path / "b.jsonl").write_text('\n{"src": "e", "tgt": "f"}\n')
    (tmp_path / "c.tmx").write_text(as_tmx([("g", "h")]))
    sources = [str(tmp_path / name) for name in ("a.tsv", "b.jsonl", "c.tmx")]
    result = [(pair.src, pair.tgt, pair.where) for pair in read_pairs(sources, "zh", "en")]
    a, b, c = sources
    assert result == [
        ("a", "b", f"{a}, line 1"),
        ("", "", f"{a}, line 2"),
        ("c", "d", f"{a}, line 3"),
        ("", "", f"{b}, line 1"),
        ("e", "f", f"{b}, line 2"),
        ("g", "h", f"{c}, unit 1"),
    ]


BAD_FILES = [
    (
        "one.tsv",
        "a\tb\nonly one\n",
        "one.tsv, line 2: a line must have two columns separated by a tab, got 1: 'only one'",
    ),
    ("a.jsonl", '{"src": "a"', r"a\.jsonl, line 1: each line must be one JSON object, got '\{\"src\": \"a\"'"),
    ("a.jsonl", "[1, 2]", r"a\.jsonl, line 1: each line must be one JSON object, got '\[1, 2\]'"),
    (
        "a.jsonl",
        '{"src": "a", "tgt": 7}',
        r"strings for src and tgt.+languages zh and en.+got '\{\"src\": \"a\", \"tgt\": 7\}'",
    ),
    ("a.jsonl", '{"translation": "x"}', r"a\.jsonl, line 1: an object must have.+got '\{\"translation\": \"x\"\}'"),
    (
        "a.tmx",
        "<tmx><body>\n<tu></body></tmx>",
        r"a\.tmx, line 2: the file must be well-formed XML, got mismatched tag",
    ),
    ("a.tmx", "", r"a\.tmx, line 1: the file must be well-formed XML, got no element found"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD_FILES)
def test_a_mistake_is_named_with_its_place(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize(("n_src", "n_tgt"), [(5, 3), (0, 2), (3, 4)])
def test_files_of_different_lengths_are_both_named(tmp_path, n_src, n_tgt):
    (tmp_path / "a.zh").write_text("x\n" * n_src)
    (tmp_path / "a.en").write_text("x\n" * n_tgt)
    with pytest.raises(
        ValueError, match=rf"a\.zh and .+a\.en must have the same number of lines, got {n_src} and {n_tgt}"
    ):
        read(f"{tmp_path}/a.zh,{tmp_path}/a.en")


def tmx(tmp_path, *units):
    path = tmp_path / "memory.tmx"
    path.write_text(f"<tmx><body>{''.join(units)}</body></tmx>", encoding="utf-8")
    return path


def test_a_memory_of_many_languages_gives_the_two_that_are_wanted(tmp_path):
    path = tmx(tmp_path, unit(("fr", "f"), ("en-US", "e"), ("zh_Hans-CN", "z")), unit(("en", "e2"), ("fr", "f2")))
    assert read(path) == [("z", "e"), ("", "e2")]
    assert read(path, langs=("en", "fr")) == [("e", "f"), ("e2", "f2")]
    assert read(path, langs=("src", "tgt")) == [("f", "e"), ("e2", "f2")]


def test_a_language_is_no_prefix_of_another(tmp_path):
    path = tmx(tmp_path, unit(("est", "wrong"), ("es", "right"), ("en", "e")))
    assert read(path, langs=("es", "en")) == [("right", "e")]


def test_a_memory_without_the_languages_is_named_with_those_it_has(tmp_path):
    path = tmx(tmp_path, unit(("fr", "f"), ("de", "d")))
    with pytest.raises(ValueError, match=r"memory\.tmx, unit 1: .+ zh and en, got fr, de"):
        read(path)


def test_codes_inside_a_sentence_are_no_words(tmp_path):
    path = tmx(
        tmp_path, unit(("zh", "<bpt i='1'>&lt;b&gt;</bpt>粗<hi>体<ph>x</ph></hi>字<ept i='1'/>。"), ("en", "bold"))
    )
    assert read(path) == [("粗体字。", "bold")]


def test_a_large_memory_is_read_in_little_memory(tmp_path):
    path = tmx(tmp_path, *[unit(("zh", "z" * 500), ("en", "e" * 500))] * 1000)
    tracemalloc.start()
    n = sum(1 for _ in read_pairs([str(path)], "zh", "en"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n == 1000
    assert peak < path.stat().st_size / 3


BAD_SOURCES = [
    ("absent.tsv", r"absent\.tsv: no such file"),
    ("pairs.tsv,absent.en", r"absent\.en: no such file"),
    ("pairs.tsv,pairs.tsv,pairs.tsv", r"a comma must join two files, source and target, got 'pairs\.tsv, "),
    ("pairs.tsv,", "a comma must join two files, source and target, got 'pairs.tsv, '"),
    ("pairs.tsv,-", "a comma must join two files, source and target, got 'pairs.tsv, -'"),
    (
        "pairs.tvs",
        r"pairs\.tvs: unknown extension '\.tvs': did you mean '\.tsv'\? valid are \.tsv, .+ with \.gz, \.xz, \.zst",
    ),
    ("pairs", r"pairs: unknown extension ''"),
    (".", "a source must be a file, got a folder"),
]


@pytest.mark.parametrize(("source", "message"), BAD_SOURCES)
def test_a_wrong_source_is_named(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    for name in ("pairs.tsv", "pairs.tvs", "pairs"):
        (tmp_path / name).write_text("a\tb\n")
    with pytest.raises(ValueError, match=message):
        check_sources([source])
    with pytest.raises(ValueError, match=message):
        read(source)


def test_good_sources_pass_the_check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.tsv", "a,b.tsv", "x.zh"):
        (tmp_path / name).write_text("a\tb\n")
    check_sources(["a.tsv", "a,b.tsv", "x.zh,x.zh", "-"])
    assert split_source("a,b.tsv") == ("a,b.tsv",)  # a file may have a comma in its name
    assert split_source("x.zh, x.zh") == ("x.zh", "x.zh")


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.zh,a.en"])
def test_a_line_that_is_too_long_costs_no_other(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    pairs = [("a", "b"), ("x" * 1200, "y"), ("c", "d")]
    for path, columns in (("a.tsv", slice(None)), ("a.zh", slice(0, 1)), ("a.en", slice(1, 2))):
        (tmp_path / path).write_text("".join("\t".join(pair[columns]) + "\n" for pair in pairs))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"src": a, "tgt": b}) + "\n" for a, b in pairs))
    monkeypatch.chdir(tmp_path)
    found = list(read_pairs([name], "zh", "en"))
    assert [(pair.src, pair.tgt, pair.overlong) for pair in found] == [
        ("a", "b", False),
        ("", "", True),
        ("c", "d", False),
    ]
    assert found[1].where.endswith("line 2")
    index = scan(found, max_chars=100)
    assert index.statuses.tolist() == [Status.TRAIN, Status.OVERLONG, Status.TRAIN]


def test_a_unit_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MAX_LINE_BYTES", 100_000)
    good, long = [unit(("zh", "好"), ("en", "good"))] * 3, unit(("zh", "好"), ("en", "x" * 400_000))
    path = tmx(tmp_path, *good, long)
    with pytest.raises(ValueError, match=r"unit 4: a unit must be shorter than 100000 bytes"):
        read(path)
    assert len(read(tmx(tmp_path, *good * 2_000))) == 6_000


def test_elements_may_be_nested_deeply(tmp_path):
    depth = 20_000
    nested = "<hi>" * depth + "好" + "</hi>" * depth + "的<ph>{}</ph>。"
    body = f'<tu><tuv xml:lang="zh"><seg>{nested}</seg></tuv><tuv xml:lang="en"><seg>good</seg></tuv></tu>'
    path = tmp_path / "deep.tmx"
    path.write_text(f"<tmx><body>{body}</body></tmx>", encoding="utf-8")
    assert read(str(path)) == [("好的。", "good")]

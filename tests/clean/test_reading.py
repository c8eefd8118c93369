"""Reading: every format in chunks, bad lines reported by their number, standard input read twice."""

import gzip
import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.clean.reading import LINES, STDIN, parse, read_chunks, readable_twice
from regard.clean.workers import start_workers
from regard.data.files import MAX_LINE_BYTES

TMX = """<?xml version="1.0"?><tmx version="1.4"><body>
<tu><tuv xml:lang="de"><seg>Hallo\tWelt</seg></tuv><tuv xml:lang="en"><seg>hello world</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>rien</seg></tuv></tu></body></tmx>"""


def lines(source, langs=("de", "en"), report=lambda _: None):
    return [line for chunk in read_chunks([str(source)], *langs, report) for line in parse(chunk)]


def texts(source, **more):
    return [(line.src, line.tgt) for line in lines(source, **more)]


def test_each_format_gives_the_same_pairs(tmp_path):
    rows = [("Hallo Welt", "hello world"), ("zwei", "two"), ("", "x")]
    tsv = tmp_path / "a.tsv.gz"
    tsv.write_bytes(gzip.compress("".join(f"{a}\t{b}\tmore\r\n" for a, b in rows).encode()))
    objects = tmp_path / "a.jsonl"
    objects.write_text("\n".join(json.dumps({"de": a, "en": b}) for a, b in rows))
    for side, name in enumerate(["de", "en"]):
        (tmp_path / name).write_text("".join(f"{row[side]}\n" for row in rows))
    assert texts(tsv) == texts(objects) == texts(f"{tmp_path / 'de'},{tmp_path / 'en'}") == rows


def test_units_of_tmx_without_the_languages_are_reported_and_empty(tmp_path):
    source, problems = tmp_path / "a.tmx", []
    source.write_text(TMX)
    assert texts(source, report=problems.append) == [("Hallo Welt", "hello world"), ("", "")]
    assert len(problems) == 1 and "unit 2" in problems[0] and "got fr" in problems[0]


def test_bad_lines_are_named_and_end_nothing(tmp_path):
    source = tmp_path / "a.tsv"
    long = b"x" * (MAX_LINE_BYTES + 1)
    source.write_bytes(b"a\tb\nno tab\n\xff\xfe\tb\n" + long + b"\nc\td\n\n")
    found = lines(source)
    assert [line.problem is None for line in found] == [True, False, False, False, True, True]
    assert [line.where.split(", ")[-1] for line in found] == [f"line {n}" for n in range(1, 7)]
    for line, words in zip(found[1:4], ("'no tab'", r"b'\xff\xfe\tb'", "16777216 bytes"), strict=True):
        assert words in (line.problem or "") and line.where in (line.problem or "")
    assert (found[4].src, found[4].tgt) == ("c", "d")


def test_files_of_different_lengths_are_refused(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    with pytest.raises(ValueError, match=r"same number of lines, got 1 in .*b and more in .*a"):
        lines(f"{tmp_path / 'a'},{tmp_path / 'b'}")


def test_lines_are_numbered_through_chunks(tmp_path):
    source = tmp_path / "a.tsv"
    source.write_text("".join(f"{n}\tx\n" for n in range(LINES + 5)))
    chunks = list(read_chunks([str(source)], "de", "en", lambda _: None))
    assert [len(chunk.lines) for chunk in chunks] == [LINES, 5]
    assert parse(chunks[1])[0].where == f"{source}, line {LINES + 1}" and parse(chunks[1])[0].src == str(LINES)


def test_standard_input_is_read_twice_and_once_only(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\n")))
    with readable_twice(["-"]) as sources:
        for _ in range(2):
            assert [line.where for line in lines(sources[0])] == [f"{STDIN}, line 1"]
    with pytest.raises(ValueError, match="got - 2 times"), readable_twice(["-", "-"]):
        pass


@given(st.binary(max_size=300))
def test_no_bytes_end_the_reading(tmp_path_factory, raw):
    source = tmp_path_factory.mktemp("bytes") / "a.tsv"
    source.write_bytes(raw if not raw.startswith((b"\xff\xfe", b"\xfe\xff")) else raw[2:])
    try:
        found = lines(source)
    except ValueError as error:
        assert "UTF-16" in str(error)
    else:
        text = source.read_bytes()
        assert len(found) == text.count(b"\n") + (not text.endswith(b"\n") and text != b"")


def double(n):
    if n == 13:
        raise ValueError(f"got {n}")
    return 2 * n


def test_workers_give_results_in_order_and_pass_errors_on():
    with start_workers(2) as workers:
        assert list(workers(double, range(12))) == list(map(double, range(12)))
        with pytest.raises(ValueError, match="got 13"):
            list(workers(double, range(20)))
    with pytest.raises(ValueError, match="got 0"), start_workers(0):
        pass

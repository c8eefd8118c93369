"""Lines of files: only a line feed ends one, and what is not UTF-8 is shown.

Bytes of files: every compression gives back what went in, and damage is named.
"""

import gzip
import io
import lzma
import os
import random
import sys
import tracemalloc
from types import SimpleNamespace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from regard.cli.translate import windows
from regard.data import files as lines
from regard.data.files import (
    _BlockStream,
    _decompress_zstd,
    format_suffix,
    open_bytes,
    read_good_lines,
    read_lines,
    stdin_pauses,
)

# Signs at which Python's own splitting would end a line, and others.
SIGNS = st.text(st.sampled_from("ab\t\x0b\x0c\x1c\x1e\x85\u2028\u2029介"), max_size=6)


@given(texts=st.lists(SIGNS, max_size=5), end=st.sampled_from(["\n", "\r\n"]), marked=st.booleans())
def test_lines_come_back(tmp_path_factory, texts, end, marked):
    path = tmp_path_factory.mktemp("lines") / "text.txt"
    path.write_bytes(("\ufeff" * (marked and len(texts) > 0) + "".join(text + end for text in texts)).encode())
    assert list(read_lines(str(path))) == texts


def test_a_last_line_without_end_counts(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo")
    assert list(read_lines(str(tmp_path / "a.txt"))) == ["one", "two"]


def test_bytes_that_are_not_utf_8_are_shown_with_their_line(tmp_path):
    path = tmp_path / "latin.tsv"
    path.write_bytes("süß\tsweet\n".encode() + "süß\tsweet\n".encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"latin\.tsv, line 2: text must be UTF-8, got b'\\xfc\\xdf\\ts' after 1 bytes"
    ):
        list(read_lines(str(path)))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_named(tmp_path, encoding):
    path = tmp_path / "wide.tsv"
    path.write_bytes("\ufeffa\tb\n".encode(encoding))
    with pytest.raises(ValueError, match=r"wide\.tsv, line 1: text must be UTF-8, got UTF-16"):
        list(read_lines(str(path)))


def test_a_line_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "long.tsv"
    path.write_text("short\n" + "x" * 998 + "\n" + "x" * 1001 + "\n")
    result = read_lines(str(path))
    assert [len(next(result)), len(next(result))] == [5, 998]
    with pytest.raises(ValueError, match=r"long\.tsv, line 3: a line must be shorter than 1000 bytes"):
        next(result)


def test_a_line_that_is_too_long_is_skipped_where_others_are_wanted(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "long.tsv"
    path.write_text("short\n" + "x" * 2500 + "\n" + "x" * 999 + "\nlast\n" + "x" * 2000)
    skipped = lines.OVERLONG_LINE
    assert list(read_lines(str(path), skip_overlong=True)) == ["short", skipped, skipped, "last", skipped]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_small_file_of_one_long_line_takes_little_memory(tmp_path, suffix):
    packers = {".gz": gzip.open, ".xz": lzma.open, ".zst": zstandard.open}
    path = tmp_path / f"long.tsv{suffix}"
    quick = {".gz": {"compresslevel": 1}, ".xz": {"preset": 0}}
    with packers[suffix](path, "wb", **quick.get(suffix, {})) as file:
        for _ in range(48):
            file.write(bytes(1 << 22))
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf"long\.tsv\{suffix}, line 1: a line must be shorter than 16777216 bytes"):
        next(read_lines(str(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20, "a line of 192 MiB is not held in memory"


PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
NOISE = random.Random(1).randbytes(300_000)  # more than one block, and does not shrink


def contents(path):
    with open_bytes(str(path)) as stream:
        return stream.read()


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("data", [b"", b"a\nb\n", NOISE], ids=["empty", "short", "long"])
def test_what_was_packed_comes_back(tmp_path, ending, data):
    path = tmp_path / f"text.tsv{ending}"
    path.write_bytes(PACK[ending](data))
    assert contents(path) == data


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_files_that_were_appended_to_each_other_are_read_to_the_end(tmp_path, ending):
    path = tmp_path / f"text{ending}"
    path.write_bytes(PACK[ending](b"one\n") + PACK[ending](b"") + PACK[ending](b"two\n"))
    with open_bytes(str(path)) as stream:
        assert list(stream) == [b"one\n", b"two\n"]


@given(frames=st.lists(st.binary(max_size=20), max_size=4), size=st.integers(1, 7))
def test_zst_is_read_in_pieces_of_any_size(frames, size):
    raw = io.BytesIO(b"".join(map(zstandard.compress, frames)))
    stream = _BlockStream(_decompress_zstd(raw))
    result = b""
    while block := stream.read(size):
        assert len(block) <= size
        result += block
    assert result == b"".join(frames)


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("left", [5, 100_000, -1])
def test_a_file_that_breaks_off_is_named(tmp_path, ending, left):
    path = tmp_path / f"broken{ending}"
    path.write_bytes(PACK[ending](NOISE)[:left])
    with pytest.raises(
        ValueError,
        match=rf"broken\{ending}: a compressed file must be complete and match its extension, got .+ copy it again",
    ):
        contents(path)


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_file_that_is_not_what_it_is_called_is_named(tmp_path, ending):
    path = tmp_path / f"plain.tsv{ending}"
    path.write_bytes(b"one\ttwo\n" * 9)
    with pytest.raises(ValueError, match=rf"plain\.tsv\{ending}: a compressed file must be complete"):
        contents(path)


def test_a_folder_and_nothing_are_no_files(tmp_path):
    with pytest.raises(ValueError, match=rf"{tmp_path}: a source must be a file, got a folder"):
        contents(tmp_path)
    with pytest.raises(ValueError, match=r"absent\.tsv: no such file"):
        contents(tmp_path / "absent.tsv")


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    path = tmp_path / "secret.tsv"
    path.touch()

    def refuse(*_):
        raise PermissionError(13, "Permission denied")  # a superuser may read anything

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ValueError, match=r"secret\.tsv: .+ readable file, got Permission denied"):
        contents(path)


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\tb\n")))
    with open_bytes("-") as stream:
        assert stream.read() == b"a\tb\n"


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("a.tsv", ".tsv"),
        ("a.b/c.jsonl.gz", ".jsonl"),
        ("A.TMX.XZ", ".tmx"),
        ("a.tsv.zst", ".tsv"),
        ("a.gz", ""),
        ("a", ""),
    ],
)
def test_the_format_is_the_ending_before_the_compression(source, result):
    assert format_suffix(source) == result


@pytest.fixture
def pipe(monkeypatch):
    """Make a pipe standard input, and yield the end that is written to."""
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as stdin, open(writing, "wb", buffering=0) as stdout:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr(lines, "PAUSE", 0.0)
        yield stdout


def test_a_pipe_pauses_until_a_line_or_its_end_comes(pipe):
    assert stdin_pauses()
    pipe.write(b"one\ntwo\n")
    assert not stdin_pauses()
    found = read_lines("-")
    assert next(found) == "one" and not stdin_pauses(), "the second line is in the buffer"
    assert next(found) == "two" and stdin_pauses()
    assert os.get_blocking(sys.stdin.fileno())
    pipe.close()
    assert not stdin_pauses() and list(found) == []


def test_what_is_not_a_file_of_the_system_never_pauses(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert not stdin_pauses()


def test_lines_are_taken_as_they_come(pipe):
    found = windows(read_lines("-"), stdin_pauses)
    pipe.write(b"one\ntwo\n")
    assert next(found) == ["one", "two"]
    pipe.write(b"three\n")
    assert next(found) == ["three"]
    pipe.write(b"four\nfive")
    pipe.close()
    assert list(found) == [["four", "five"]]


def test_lines_that_cannot_be_read_are_reported_and_left_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    path = tmp_path / "text.txt"
    path.write_bytes(b"one\n\xff\xfe\xfd\n" + b"x" * 500 + b"\nfour\n")
    problems = []
    assert list(read_good_lines(str(path), problems.append)) == ["one", "", "", "four"]
    assert "text.txt, line 2: text must be UTF-8, got b'\\xff\\xfe\\xfd" in problems[0]
    assert "text.txt, line 3: a line must be shorter than 100 bytes" in problems[1]

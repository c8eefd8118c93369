"""Lines of files: only a line feed ends one, and what is not UTF-8 is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text import lines
from regard.text.lines import read_lines

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
    monkeypatch.setattr(lines, "LONGEST", 1000)
    path = tmp_path / "long.tsv"
    path.write_text("short\n" + "x" * 998 + "\n" + "x" * 1001 + "\n")
    found = read_lines(str(path))
    assert [len(next(found)), len(next(found))] == [5, 998]
    with pytest.raises(ValueError, match=r"long\.tsv, line 3: a line must be shorter than 1000 bytes"):
        next(found)

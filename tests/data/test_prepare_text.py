"""Text without translations: read to the last sign, split, and stored."""

import gzip

import pytest

from regard.config import DataSettings, TextSettings
from regard.data.cleaning import Status
from regard.data.formats import read_blocks, read_documents
from regard.data.prepare import prepare
from regard.data.prepare_text import TextRange, count_characters, range_lines, read_range
from regard.data.store import IdStore, Windows

POEMS = [f"title {n}\tsomebody\tline {n * 7 % 23} of {n}." for n in range(40)]


def run(folder, form, *train, text=None, **given):
    log = []
    sources = tuple(str(path) for path in train)
    settings = TextSettings(**{"kind": "characters", "max_len": 64} | (text or {}))
    held = {name: tuple(map(str, paths)) for name, paths in given.items() if name in {"valid", "test"}}
    data = DataSettings(form=form, train=sources, **given | held)
    return prepare(data, settings, folder, log.append, seed=1), log


def write(path, text):
    path.write_bytes(text.encode())
    return path


def decoded(dataset, store):
    ids = store.ids if isinstance(store, Windows) else store.ids["tgt"]
    return dataset.tokenizer.decode(ids.tolist())


@pytest.mark.parametrize("text", ["", "a\n\n b\r\n", "\ufeffmark", "床前\n明月 \u2028光\t.", "x" * 3 + "é" * (1 << 20)])
def test_running_text_is_read_to_the_last_sign(tmp_path, text):
    path = write(tmp_path / "a.txt", text)
    assert "".join(read_blocks(str(path))) == text.removeprefix("\ufeff")
    assert count_characters(str(path)) == len(text.removeprefix("\ufeff"))


def test_a_part_is_what_stands_between_two_places(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.formats.BLOCK", 5)
    path = write(tmp_path / "a.txt", "ab\ncdé\n\nfghijk\nl")
    assert "".join(read_range(TextRange(str(path), 4, 12))) == "dé\n\nfghi"
    assert list(range_lines(TextRange(str(path), 4, 12))) == ["dé", "", "fghi"]
    assert list(range_lines(TextRange(str(path), 0, 14))) == ["ab", "cdé", "", "fghijk"]


def test_nine_tenths_of_a_text_are_learned_from_and_the_rest_is_held(tmp_path):
    text = "".join(f"line {n}\n\n" for n in range(100)) + "the end  "
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))
    dataset, log = run(tmp_path / "run", "text", path)
    border = len(text) * 9 // 10
    assert decoded(dataset, dataset.train) == text[:border]
    assert decoded(dataset, dataset.valid) == text[border:]
    assert isinstance(dataset.train, Windows) and dataset.train.width == 64 and len(dataset.test) == 0
    assert log[-1] == f"{len(text):,} characters read: {border} for training, {len(text) - border} for validation " + (
        "(split off), 0 for test"
    )
    again, log = run(tmp_path / "run", "text", path)
    assert "is used again" in log[0] and again.report == dataset.report and again.valid_pairs == []


def test_validation_and_test_may_be_given(tmp_path):
    paths = [write(tmp_path / name, f"{name} " * 40) for name in ("a.txt", "b.txt", "c.txt", "d.txt")]
    dataset, _ = run(tmp_path / "run", "text", *paths[:2], valid=paths[2:3], test=paths[3:])
    assert decoded(dataset, dataset.train) == "a.txt " * 40 + "b.txt " * 40
    assert decoded(dataset, dataset.valid) == "c.txt " * 40
    assert decoded(dataset, dataset.test) == "d.txt " * 40


def test_other_pieces_fold_white_space(tmp_path):
    path = write(tmp_path / "a.txt", "some  words\n\nand\tmore of them\n" * 60)
    dataset, _ = run(tmp_path / "run", "text", path, text={"kind": "bpe", "vocab_size": 300})
    assert decoded(dataset, dataset.train).startswith("some words and more of them some words and")
    assert not dataset.tokenizer.exact and dataset.tokenizer.joint


def test_the_columns_of_a_line_are_the_lines_of_a_document(tmp_path):
    path = write(tmp_path / "a.tsv", "静夜思\t李白\t床前明月光\n\nalone\n")
    assert [each.text for each in read_documents([str(path)], ())] == ["静夜思\n李白\n床前明月光", "", "alone"]
    path = write(tmp_path / "b.tsv", "静夜思\t李白\t床前明月光\n\n")
    assert [each.text for each in read_documents([str(path)], (3, 1))] == ["床前明月光\n静夜思", ""]
    with pytest.raises(ValueError, match=r"a.tsv, line 3: .* got 3 and a line with 1"):
        list(read_documents([str(tmp_path / "a.tsv")], (3, 1)))


def test_documents_are_stored_once_and_apart(tmp_path):
    lines = [*POEMS, POEMS[3], "", "long " * 20, POEMS[7]]
    train = write(tmp_path / "a.tsv", "\n".join(lines) + "\n")
    test = write(tmp_path / "t.tsv", f"{POEMS[5].upper()}\nnew\tby\tme\n")
    dataset, log = run(tmp_path / "run", "documents", train, test=[test])
    report = dataset.report
    counts = {
        verdict: report.left_out_by(verdict).count for verdict in (Status.DUPLICATE, Status.EMPTY, Status.IN_TEST)
    }
    assert counts == {Status.DUPLICATE: 2, Status.EMPTY: 1, Status.IN_TEST: 1}
    assert (
        report.left_out_by(Status.OVERLONG).count == 1
        and f"{train}, line 43" in report.left_out_by(Status.OVERLONG).examples
    )
    assert (report.read, report.valid, report.test) == (44, 3, 2) and report.train == 36
    held = [dataset.tokenizer.decode(dataset.valid.tgt(i).tolist()) for i in range(3)]
    learned = [dataset.tokenizer.decode(dataset.train.tgt(i).tolist()) for i in range(36)]
    expected = {line.replace("\t", "\n") for n, line in enumerate(POEMS) if n != 5}
    assert set(held) | set(learned) == expected and len(expected) == 39
    assert isinstance(dataset.train, IdStore) and all(len(dataset.train.src(i)) == 0 for i in range(36))
    assert "1 left out that are empty" in "\n".join(log) and "44 documents read" in "\n".join(log)


def test_documents_that_are_too_long_in_pieces_are_left_out(tmp_path):
    rare = ["".join(chr(first + n) for n in range(40)) for first in (0x4E00, 0x5E00)]
    train = write(tmp_path / "a.tsv", "\n".join([*POEMS, *rare]))
    common = len(set("".join(POEMS)))
    dataset, _ = run(tmp_path / "run", "documents", train, text={"vocab_size": 260 + common}, weights=(2.0,))
    assert dataset.report.left_out_by(Status.OVERLONG).count == 2, "three bytes for each sign"
    assert dataset.train.header.weights == [2.0] and len(dataset.train.epoch_pairs(0, 0)) == 2 * len(dataset.train)


@pytest.mark.parametrize(
    ("form", "given", "text", "message"),
    [
        ("text", {}, {"max_len": 1}, "text.max_len must be 2 or more .*, got 1"),
        ("text", {"weights": (1.0,)}, {}, r"data.weights has no meaning for data.form 'text', got \(1.0,\)"),
        ("documents", {"reverse": True}, {}, "data.reverse has no meaning for data.form 'documents', got True"),
        ("documents", {"columns": (0,)}, {}, "data.columns must be counted from 1, got 0"),
        ("text", {}, {"sampling": 0.1}, "text.sampling has no meaning for data.form 'text', got 0.1"),
        ("text", {"valid": ("nowhere.txt",)}, {}, "nowhere.txt: no such file"),
        ("text", {}, {"max_len": 500}, "must have 999 tokens or more for windows of text.max_len 500, got 720"),
        ("documents", {}, {"max_len": 5}, r"10 pairs or more|got 0"),
    ],
)
def test_what_cannot_be_prepared(tmp_path, form, given, text, message):
    path = write(tmp_path / "a.txt", "12345678\n" * 50 + "other\n" * 58 + "xy")
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", form, path, text=text, **given)
    assert not (tmp_path / "run" / "data").exists()


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"abc\xff\xfe")
    with pytest.raises(ValueError, match=r"a.txt: text must be UTF-8, got b'\\xff"):
        list(read_blocks(str(tmp_path / "a.txt")))

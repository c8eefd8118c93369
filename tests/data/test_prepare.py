"""The whole way from files to ids: laws of the splits, of using again, and of leaving nothing behind."""

import io
import json
import os
import sys
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest

from regard.config import DataSettings, TextSettings
from regard.data.cleaning import Status
from regard.data.prepare import prepare
from tests.data.corpora import as_tsv, sentences

module = sys.modules["regard.data.prepare"]  # the room's own name for it is the function
TEXT = TextSettings(vocab_size=400, max_len=60)
CLEAN = sentences(120)


def silent(message):
    pass


def run(folder, train, text=TEXT, say=silent, **given):
    train = train if isinstance(train, tuple) else (str(train),)
    options = {name: given.pop(name) for name in ("tokenizer", "tick", "seed") if name in given}
    return prepare(DataSettings(train=train, **given), text, folder, say, **{"seed": 1} | options)


def write(path, pairs):
    path.write_text(as_tsv(pairs), encoding="utf-8")
    return path


def decoded(dataset, store):
    """Return the pairs of a store as strings."""
    tokenizer = dataset.tokenizer
    return [(tokenizer.decode(store.src(i), "src"), tokenizer.decode(store.tgt(i), "tgt")) for i in range(len(store))]


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_every_pair_is_where_the_report_says(tmp_path):
    valid, test = sentences(7, seed=2), sentences(5, seed=3)
    mess = [
        *CLEAN[:50],
        CLEAN[3],  # line 51
        ("", "nothing"),
        ("长" * 100_000, "long"),
        (valid[2][0], "shares its source with validation"),
        ("与测试共享译文", test[1][1]),
        ("短", "word " * 30),  # line 56
        ("，".join("介绍一下西安" * 12), "the house " * 40),
        *CLEAN[50:],
    ]
    train = write(tmp_path / "train.tsv", mess)
    held = {
        "valid": (str(write(tmp_path / "valid.tsv", [*valid, ("", "x")])),),
        "test": (str(write(tmp_path / "test.tsv", test)),),
    }
    dataset = run(tmp_path / "run", train, **held)
    report = dataset.report
    left = {
        verdict: (report.left_out_by(verdict).count, report.left_out_by(verdict).examples)
        for verdict in list(Status)[2:]
    }
    assert left == {
        Status.DUPLICATE: (1, (f"{train}, line 51",)),
        Status.EMPTY: (1, (f"{train}, line 52",)),
        Status.OVERLONG: (2, (f"{train}, line 53", f"{train}, line 57")),
        Status.IN_VALID: (1, (f"{train}, line 54",)),
        Status.IN_TEST: (1, (f"{train}, line 55",)),
        Status.OUTLIER: (1, (f"{train}, line 56",)),
        Status.EXCLUDED: (0, ()),
    }
    assert report.read == len(mess) == report.train + sum(count for count, _ in left.values())
    assert (report.valid, report.test, report.held_empty, report.valid_is_split) == (7, 5, 1, False)
    assert decoded(dataset, dataset.train) == CLEAN
    assert decoded(dataset, dataset.valid) == dataset.valid_pairs == valid
    assert decoded(dataset, dataset.test) == dataset.test_pairs == test


def test_validation_is_split_off_where_none_is_given(tmp_path):
    shared = [(src[::-1], tgt) for src, tgt in CLEAN]  # so that no choice is free of sharing
    dataset = run(tmp_path / "run", write(tmp_path / "train.tsv", CLEAN + shared), valid_size=10)
    train, valid = decoded(dataset, dataset.train), dataset.valid_pairs
    assert decoded(dataset, dataset.valid) == valid
    assert len(valid) == 10
    assert dataset.report.valid_is_split
    for side in (0, 1):
        assert not {pair[side] for pair in train} & {pair[side] for pair in valid}
    n_shared = dataset.report.left_out_by(Status.IN_VALID).count
    assert n_shared > 0
    assert len(train) + len(valid) + n_shared == dataset.report.read == 240
    assert (len(dataset.test), dataset.test_pairs) == (0, [])


def test_no_more_than_a_tenth_is_split_off(tmp_path):
    dataset = run(tmp_path / "run", write(tmp_path / "train.tsv", CLEAN))
    assert (len(dataset.valid), len(dataset.train)) == (12, 108)


def test_a_given_sentence_that_does_not_fit_is_scored_but_not_stored(tmp_path):
    valid = [*sentences(3, seed=2), ("介绍" * 100, "the house " * 100)]
    held = (str(write(tmp_path / "valid.tsv", valid)),)
    dataset = run(tmp_path / "run", write(tmp_path / "train.tsv", CLEAN), valid=held)
    assert [src for src, _ in dataset.valid_pairs] == [src for src, _ in valid]
    assert decoded(dataset, dataset.valid) == valid[:3]


def test_nothing_is_made_twice(tmp_path, monkeypatch):
    train, message = write(tmp_path / "train.tsv", CLEAN), []
    first = run(tmp_path / "run", train)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(module, "_write_pairs", None)
    again = run(tmp_path / "run", train, replace(TEXT, variants=3), say=message.append)  # not used without sampling
    assert message[0].endswith("data is unchanged and is used again")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert again.report == first.report
    assert decoded(again, again.train) == decoded(first, first.train)
    assert again.valid_pairs == first.valid_pairs


def other_text(train):
    write(train, [*CLEAN[1:], sentences(1, seed=9)[0]])


CHANGES = {
    "text": other_text,
    "settings": lambda train: {"text": replace(TEXT, max_len=59)},
    "sampling": lambda train: {"text": replace(TEXT, sampling=0.1)},
    "weights": lambda train: {"weights": (2.0,)},
    "size of validation": lambda train: {"valid_size": 5},
    "seed": lambda train: {"seed": 2},
    "a damaged store": lambda train: (train.parent / "run/data/train/src.bin").write_bytes(b"xx"),
    "a missing tokenizer": lambda train: (train.parent / "run/data/tokenizer.model").unlink(),
}


def test_a_text_with_another_time_and_the_same_contents_is_used_again(tmp_path):
    train, message = write(tmp_path / "train.tsv", CLEAN), []
    run(tmp_path / "run", train)
    os.utime(train, ns=(1, 1))
    run(tmp_path / "run", train, say=message.append)
    assert message[0].endswith("data is unchanged and is used again")


def test_a_setting_that_an_earlier_version_did_not_have_is_no_change(tmp_path):
    train, message = write(tmp_path / "train.tsv", CLEAN), []
    run(tmp_path / "run", train)
    path = tmp_path / "run" / "data" / "fingerprint.json"
    mark = json.loads(path.read_text())
    del mark["text"]["symbols"], mark["data"]["weights"]
    path.write_text(json.dumps(mark))
    run(tmp_path / "run", train, say=message.append)
    assert message[0].endswith("data is unchanged and is used again")


def test_a_change_amid_a_long_text_is_seen(tmp_path):
    """Its size and both ends are as they were."""
    train, message = write(tmp_path / "train.tsv", [(f"{n:05d} ab", f"{n:05d} ba") for n in range(14_000)]), []
    run(tmp_path / "run", train)
    train.write_text(train.read_text().replace("07000 ab", "07000 xy"))
    run(tmp_path / "run", train, say=message.append)
    size = f"{train.stat().st_size:,}"
    assert message[0] == f"preparing the text again: {train} had {size} bytes and has {size}, with other contents"


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_made_anew(tmp_path, change):
    train = write(tmp_path / "train.tsv", CLEAN)
    run(tmp_path / "run", train)
    given = CHANGES[change](train)
    message = []
    dataset = run(tmp_path / "run", train, say=message.append, **(given if isinstance(given, dict) else {}))
    assert f"reading {train}" in message
    assert len(dataset.train) + len(dataset.valid) == 120
    assert run(tmp_path / "fresh", train, **(given if isinstance(given, dict) else {})).report == dataset.report


def test_a_tokenizer_that_is_given_is_used(tmp_path):
    train = write(tmp_path / "train.tsv", CLEAN)
    old = run(tmp_path / "old", write(tmp_path / "old.tsv", sentences(100, seed=4))).tokenizer
    message = []
    dataset = run(tmp_path / "run", train, say=message.append, tokenizer=old)
    assert dataset.tokenizer.models == old.models
    assert not [line for line in message if line.startswith("training a tokenizer")]
    run(tmp_path / "run", train, say=message.append)
    assert [line for line in message if line.startswith("training a tokenizer")], (
        "without it the text is prepared again"
    )


def test_separate_vocabularies_are_kept_apart(tmp_path):
    text = replace(TEXT, joint=False, max_ratio=20.0)  # how pieces are cut, and how many, is SentencePiece's
    dataset = run(tmp_path / "run", write(tmp_path / "train.tsv", CLEAN), text)
    assert not dataset.tokenizer.joint
    assert set(decoded(dataset, dataset.train)) | set(dataset.valid_pairs) == set(CLEAN)


def test_standard_input_is_kept_and_read_once(tmp_path, monkeypatch):
    stream = io.BytesIO(as_tsv(CLEAN).encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    first = run(tmp_path / "run", "-")
    again = run(tmp_path / "run", "-", replace(TEXT, max_len=59))
    assert decoded(first, first.train) == decoded(again, again.train)
    file = run(tmp_path / "other", write(tmp_path / "train.tsv", CLEAN))
    assert decoded(first, first.train) == decoded(file, file.train)


def test_standard_input_that_is_wrong_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\tb\nc\n")))
    with pytest.raises(ValueError, match=r"stdin\.tsv, line 2: a line must have two columns .+ got 1: 'c'"):
        run(tmp_path / "runs" / "mine", "-")
    assert names(tmp_path) == []


def test_standard_input_can_be_given_once(tmp_path):
    with pytest.raises(ValueError, match="can be read once, got - 2 times"):
        run(tmp_path / "run", ("-", "-"))


def test_ticks_count_the_pairs_of_each_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 50)
    ticks = []
    run(tmp_path / "run", write(tmp_path / "train.tsv", CLEAN), tick=ticks.append)
    assert sum(ticks) == 3 * 120
    assert max(ticks) == 50


MANY = as_tsv(CLEAN)
BAD_TEXTS = {
    "empty": ("", r"train\.tsv: the text must have sentence pairs, got an empty file"),
    "one pair": (
        "a\tb\n",
        r"train\.tsv: a text must have 10 pairs or more .+, got 1 usable of 1",
    ),
    "a line of 100,000 characters": ("a" * 100_000 + "\tb\n", "got 0 usable of 1"),
    "one column": (MANY + "one\n", r"train\.tsv, line 121: a line must have two columns .+, got 1: 'one'"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_a_bad_text_is_named_and_leaves_nothing(tmp_path, name):
    text, message = BAD_TEXTS[name]
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "runs" / "mine", tmp_path / "train.tsv")
    assert names(tmp_path) == ["train.tsv"]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("", "x")], r"valid\.tsv: data\.valid must have 1 pair or more, got 1 with empty sides"),
        (CLEAN[1:], r"train\.tsv: 2 training pairs or more must be left, got 1 of 120 \(119 in_valid\)"),
        ([("介绍" * 100, "b")], "validation must have 1 pair or more with at most 60 tokens a side, got 0 of 1"),
    ],
)
def test_bad_validation_text_is_named_and_leaves_nothing(tmp_path, pairs, message):
    train, valid = write(tmp_path / "train.tsv", CLEAN), write(tmp_path / "valid.tsv", pairs)
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", train, valid=(str(valid),))
    assert names(tmp_path) == ["train.tsv", "valid.tsv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (replace(TEXT, max_len=0), r"text\.max_len must be 1 or more, got 0"),
        (replace(TEXT, max_ratio=0.5), r"text\.max_ratio must be 1 or more, got 0\.5"),
        (replace(TEXT, sampling=2.0), r"text\.sampling must lie in 0 … 1, got 2\.0"),
        (replace(TEXT, variants=0), r"text\.variants must lie in 1 … 255, got 0"),
        (replace(TEXT, variants=256), r"text\.variants must lie in 1 … 255, got 256"),
        (
            replace(TEXT, max_len=5),
            r"2 training pairs or more must be left, got \d of 120 \(1\d\d overlong.*\); add text",
        ),
    ],
)
def test_settings_that_cannot_be_met_are_named_and_leave_nothing(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", write(tmp_path / "train.tsv", CLEAN), text)
    assert names(tmp_path) == ["train.tsv"]


def test_no_training_text_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"data\.train must name the training text, got nothing"):
        run(tmp_path / "run", ())


def test_an_interrupted_preparation_leaves_what_was_there(tmp_path, monkeypatch):
    train = write(tmp_path / "train.tsv", CLEAN)
    first = run(tmp_path / "run", train)
    before = names(tmp_path)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_held_out", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", train, replace(TEXT, max_len=59))
    assert names(tmp_path) == before
    monkeypatch.undo()
    assert run(tmp_path / "run", train).report == first.report


def test_the_order_of_the_text_does_not_change_the_split(tmp_path):
    forth = run(tmp_path / "a", write(tmp_path / "a.tsv", CLEAN))
    back = run(tmp_path / "b", write(tmp_path / "b.tsv", CLEAN[::-1]))
    assert sorted(forth.valid_pairs) == sorted(back.valid_pairs)
    assert set(chain(decoded(back, back.train), back.valid_pairs)) == set(CLEAN)


def test_leaks_are_found_whatever_case_punctuation_and_spaces(tmp_path):
    train = [*CLEAN, ("Das ist, ein HAUS!", "x1"), ("x2", "THE  city?"), ("!!!", "x3"), ("…", "x4")]
    valid = write(tmp_path / "valid.tsv", [("das ist ein Haus", "y"), ("!!!", "y3")])
    test = write(tmp_path / "test.tsv", [("z", "The city.")])
    dataset = run(tmp_path / "run", write(tmp_path / "train.tsv", train), valid=(str(valid),), test=(str(test),))
    left = dataset.report.left_out_by
    assert left(Status.IN_VALID).examples == tuple(f"{tmp_path / 'train.tsv'}, line {n}" for n in (121, 123))
    assert left(Status.IN_TEST).examples == (f"{tmp_path / 'train.tsv'}, line 122",)
    assert decoded(dataset, dataset.train) == [*CLEAN, ("…", "x4")]


def test_sentences_that_are_excluded_stay_out_on_either_side(tmp_path):
    files = {
        "one.txt": CLEAN[0][0] + "!\n\n",
        "four.tsv": f"eng\tcmn\t{CLEAN[1][1].upper()}\t{CLEAN[2][0]}\n",
        "lines.de": CLEAN[3][1] + "\n",
        "a.x": CLEAN[4][0] + "\n",
        "b.y": CLEAN[5][0] + "\nmore\n",
        "rows.jsonl": json.dumps({"src": "s", "tgt": CLEAN[6][1]}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    crossed = [(CLEAN[7][1], "turned round"), ("also turned", CLEAN[7][0])]
    (tmp_path / "turned.tsv").write_text(f"{CLEAN[7][0]}\t{CLEAN[7][1]}\n", encoding="utf-8")
    out = ("one.txt", "four.tsv", "lines.de", f"a.x,{tmp_path}/b.y", "rows.jsonl", "turned.tsv")
    train = write(tmp_path / "train.tsv", CLEAN + crossed)
    message = []
    dataset = run(tmp_path / "run", train, say=message.append, exclude=tuple(f"{tmp_path}/{name}" for name in out))
    saved = {*decoded(dataset, dataset.train), *dataset.valid_pairs}
    assert saved == set(CLEAN[8:])
    assert dataset.report.left_out_by(Status.EXCLUDED).count == 10
    assert [line for line in message if line.startswith("10 left out that share a sentence with data.exclude (")]
    (tmp_path / "one.txt").write_text("other\n", encoding="utf-8")
    again = run(tmp_path / "run", train, exclude=tuple(f"{tmp_path}/{name}" for name in out))
    assert again.report.left_out_by(Status.EXCLUDED).count == 9, "the files are part of what the text was made from"


def mixture(tmp_path, **given):
    """Prepare three sources that share a pair."""
    tmp_path.mkdir(exist_ok=True)
    parts = [CLEAN[:40], [CLEAN[0], *CLEAN[40:80]], [CLEAN[0], *CLEAN[80:]]]
    files = tuple(str(write(tmp_path / f"{n}.tsv", part)) for n, part in enumerate(parts))
    valid = str(write(tmp_path / "valid.tsv", sentences(4, seed=8)))
    return run(tmp_path / "run", files, **{"valid": (valid,), **given}), files


def test_each_pair_knows_its_source(tmp_path):
    dataset, files = mixture(tmp_path, weights=(3.0, 0.5, 1.0))
    store = dataset.train
    assert decoded(dataset, store) == CLEAN
    assert store.origins.tolist() == [0] * 40 + [1] * 40 + [2] * 40, "a shared pair belongs to the first"
    times = [len(store.epoch_pairs(1, epoch)[store.epoch_pairs(1, epoch) < 40]) for epoch in range(4)]
    assert times == [120] * 4
    assert sum(len(store.epoch_pairs(1, epoch)) for epoch in range(4)) == 4 * (120 + 20 + 40)
    lines = dataset.report.lines()
    assert lines[1:4] == [
        f"40 for training from {files[0]}, each seen 3 times an epoch",
        f"40 for training from {files[1]}, each seen 0.5 times an epoch",
        f"40 for training from {files[2]}",
    ]
    again, _ = mixture(tmp_path, weights=(3.0, 0.5, 1.0))
    assert again.report == dataset.report


def test_without_weights_every_epoch_is_the_text(tmp_path):
    dataset, _ = mixture(tmp_path)
    assert dataset.train.epoch_pairs(5, 3).tolist() == list(range(120))
    assert dataset.train.draw_variants(5, 3).tolist() == [[0, 0]] * 120


def test_a_tag_stands_before_the_pairs_of_its_source(tmp_path):
    text = replace(TEXT, symbols=("<bt>",))
    dataset, _ = mixture(tmp_path, text=text, tags=("", "<bt>", ""))
    tagged = [(f"<bt> {src}", tgt) for src, tgt in CLEAN[40:80]]
    assert decoded(dataset, dataset.train) == CLEAN[:40] + tagged + CLEAN[80:]
    symbol = dataset.tokenizer.encode("<bt>", "src")[-1]
    assert all((symbol in dataset.train.src(i)) == (40 <= i < 80) for i in range(120))


@pytest.mark.parametrize("tags", [("", "<bt>", ""), ("<bt>", "<x>", "<bt>")])
def test_validation_is_split_off_text_without_a_tag_if_there_is_any(tmp_path, tags):
    dataset, _ = mixture(tmp_path, text=replace(TEXT, symbols=("<bt>", "<x>")), tags=tags, valid=(), valid_size=8)
    n_tagged = sum(src.startswith(("<bt> ", "<x> ")) for src, _ in dataset.valid_pairs)
    assert (len(dataset.valid_pairs), n_tagged) == (8, 0 if "" in tags else 8)
    assert decoded(dataset, dataset.valid) == dataset.valid_pairs


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_variants_spell_the_text_and_are_the_same_every_time(tmp_path, kind):
    text = replace(TEXT, kind=kind, sampling=0.3, variants=3, symbols=("<bt>",))
    dataset, _ = mixture(tmp_path, text=text, tags=("", "<bt>", ""))
    store, tokenizer = dataset.train, dataset.tokenizer
    assert store.header.n_variants == 3
    result = {}
    for variant in range(4):
        cuts = np.full(len(store), variant)
        for side in ("src", "tgt"):
            ids, lengths = store.rows(side, np.arange(len(store)), cuts, text.max_len, (), ())
            result[side, variant] = [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]
    for (side, variant), rows in result.items():
        plain = result[side, 0]
        assert [tokenizer.decode(row, side) for row in rows] == [tokenizer.decode(row, side) for row in plain]
        assert (rows == plain) == (variant == 0)
    assert result["tgt", 1] != result["tgt", 2]
    other, _ = mixture(tmp_path / "other", text=text, tags=("", "<bt>", ""))
    assert other.train.ids["src"].tolist() == store.ids["src"].tolist()
    changed, _ = mixture(tmp_path / "changed", text=text, tags=("", "<bt>", ""), seed=2)
    assert changed.train.ids["src"].tolist() != store.ids["src"].tolist()


def test_too_long_a_variant_gives_way_to_the_plain_one(tmp_path):
    text = replace(TEXT, kind="bpe", sampling=1.0, variants=2, max_len=30)
    dataset = run(tmp_path / "run", write(tmp_path / "train.tsv", CLEAN), text)
    store = dataset.train
    plain, drawn = store.lengths(), store.lengths(variants=np.full((len(store), 2), 2))
    n_signs = np.array([[len(src) + 1, len(tgt) + 1] for src, tgt in decoded(dataset, store)])
    assert ((drawn == plain) | (drawn == n_signs)).all(), "without merges each sign is a piece"
    assert ((drawn == plain) | (n_signs <= 30)).all()
    assert (drawn[n_signs <= 30] == n_signs[n_signs <= 30]).all()
    assert (n_signs > 30).any() and (n_signs <= 30).any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights": (1.0, 2.0)}, r"data\.weights must have one entry for each source of data\.train, got 2 for 3"),
        ({"tags": ("<bt>",)}, r"data\.tags must have one entry for each source of data\.train, got 1 for 3"),
        ({"weights": (1.0, 0.0, 1.0)}, r"data\.weights must be positive numbers, got 0\.0"),
        ({"weights": (1.0, float("nan"), 1.0)}, r"data\.weights must be positive numbers, got nan"),
        ({"tags": ("", "<bt>", "")}, r"data\.tags must be symbols of text\.symbols, or empty, got '<bt>'; .+ are none"),
        ({"exclude": ("missing.txt",)}, r"missing\.txt: no such file"),
        ({"valid_size": 0}, r"data\.valid_size must be 1 or more, got 0"),
    ],
)
def test_settings_of_data_that_cannot_be_met_are_named(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        mixture(tmp_path, **given)
    assert names(tmp_path) == ["0.tsv", "1.tsv", "2.tsv", "valid.tsv"]


def test_symbols_that_a_given_tokenizer_does_not_know_are_named(tmp_path):
    train = write(tmp_path / "train.tsv", CLEAN)
    old = run(tmp_path / "old", train, replace(TEXT, symbols=("<x>",))).tokenizer
    with pytest.raises(ValueError, match=r"symbols of the given tokenizer, got '<bt>'; it has <x>"):
        run(tmp_path / "run", train, replace(TEXT, symbols=("<x>", "<bt>")), tokenizer=old)


def test_one_translation_for_all_is_named_with_its_file(tmp_path):
    train = write(tmp_path / "train.tsv", [(src, "the same") for src, _ in CLEAN])
    with pytest.raises(ValueError, match=r"train\.tsv: a validation set must leave training pairs .+, got 0 of 120"):
        run(tmp_path / "run", train)


def test_traditional_chinese_is_folded_on_its_side_if_wanted(tmp_path):
    train = write(tmp_path / "train.tsv", [(f"龍{n}號", f"dragon {n} 龍") for n in range(30)])
    languages = {"src_lang": "zh", "tgt_lang": "en"}
    for simplify, number in ((False, "號"), (True, "号")):
        dataset = run(tmp_path / number, train, replace(TEXT, simplify=simplify), **languages)
        sources, targets = zip(*decoded(dataset, dataset.train), strict=True)
        assert all(text.endswith(number) for text in sources) and all(text.endswith("龍") for text in targets)

"""The filter as a whole: a partition of its input in order, noise found without labels, odd input survived."""

import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.clean import CleanOutputs, clean
from regard.clean.judging import Judgement, decide, foreign
from regard.clean.language import LanguageIdentifier
from regard.clean.learning import FEWEST, CleanSettings, take_sample
from regard.clean.noise import KINDS, make_noise
from regard.clean.reading import ParsedLine, read_chunks
from regard.clean.rules import CODES

from .corpora import planted, translations, write

NO_LANGUAGE = CleanSettings(skip=frozenset({"language"}))


def run(folder, source, settings=NO_LANGUAGE, scores=False, workers=1, log=lambda _: None):
    """Return what is kept and what is dropped, as rows, and the report."""
    kept, rejected = folder / "kept.tsv", folder / "rejected.tsv"
    report = clean([str(source)], CleanOutputs(kept, rejected, scores), settings, workers, log)
    rows = ([line.split("\t") for line in path.read_text().split("\n")[:-1]] for path in (kept, rejected))
    return *rows, report


def places(rows):
    return [int(row[1].rsplit(" ", 1)[1]) for row in rows]


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    pairs, kinds = planted(4000)
    return pairs, kinds, *run(folder, write(folder / "pairs.tsv", pairs), scores=True, workers=2)


def test_planted_noise_is_found_without_labels(cleaned):
    _, kinds, _, rejected, _ = cleaned
    dropped = set(places(rejected))
    recall = {
        kind: np.mean([n in dropped for n, own in enumerate(kinds, start=1) if own == kind]) for kind in set(kinds)
    }
    assert recall["shuffled"] > 0.95 and recall["copied"] > 0.99 and recall["truncated"] > 0.85
    assert recall["ok"] < 0.01


def test_noise_is_named(cleaned):
    _, kinds, _, rejected, _ = cleaned
    names = {"shuffled": "misaligned", "copied": "copy", "truncated": "truncated"}
    reasons = dict(zip(places(rejected), (row[0] for row in rejected), strict=True))
    for kind, reason in names.items():
        found = Counter(reasons[n] for n, own in enumerate(kinds, start=1) if own == kind and n in reasons)
        assert found.most_common(1)[0][0] == reason, found


def test_the_share_of_noise_is_estimated(cleaned):
    _, kinds, _, _, report = cleaned
    counts = Counter(kinds)
    assert report.noise_shares["truncated"] == pytest.approx(counts["truncated"] / len(kinds), abs=0.015)
    assert sum(report.noise_shares.values()) < 0.15


def test_what_is_kept_and_what_is_dropped_are_the_input(cleaned):
    pairs, _, kept, rejected, report = cleaned
    assert len(kept) == report.kept and len(kept) + len(rejected) == report.read == len(pairs)
    dropped = set(places(rejected))
    assert [tuple(row[:2]) for row in kept] == [pair for n, pair in enumerate(pairs, start=1) if n not in dropped]
    assert places(rejected) == sorted(dropped)
    assert [tuple(row[2:4]) for row in rejected] == [pairs[n - 1] for n in places(rejected)]


def test_scores_are_probabilities_that_decide(cleaned):
    _, _, kept, rejected, _ = cleaned
    assert all(0 <= float(row[2]) <= 0.5 for row in kept)
    assert all(float(row[4]) > 0.5 for row in rejected if row[0] in ("misaligned", "truncated"))


def test_rules_are_left_out_and_duplicates_found(tmp_path):
    pairs = [("one two", "eins zwei"), ("One two!", "eins zwei"), ("one two", "eins zwei"), ("one two", "zwei eins")]
    source = write(tmp_path / "a.tsv", pairs)
    kept, rejected, _ = run(tmp_path, source)
    assert [row[0] for row in rejected] == ["near-duplicate", "duplicate"] and len(kept) == 2
    skip = frozenset({"language", "duplicate", "near-duplicate"})
    assert len(run(tmp_path, source, CleanSettings(skip=skip))[0]) == 4


def test_workers_change_nothing(tmp_path):
    source = write(tmp_path / "a.tsv", [*translations(200), ("", "x"), *translations(200)])
    assert run(tmp_path, source)[:2] == run(tmp_path, source, workers=2)[:2]


def test_few_pairs_are_cleaned_by_rules_alone_which_is_said(tmp_path):
    said = []
    kept, *_ = run(tmp_path, write(tmp_path / "a.tsv", translations(50)), log=said.append)
    assert len(kept) == 50
    assert any("50 different pairs are too few" in line and f"{FEWEST:,}" in line for line in said)


ODD = [
    b"",
    b"\n",
    b"a\tb",
    b"a\tb\r\n",
    b"\x00\tb\n",
    "שלום\tpeace\n".encode(),
    "👍🏽\t👍\n".encode(),
    b"x" * 1_000_000 + b"\ty\n",
    b"\xff\tb\n",
    "a\u2028b\tc\x0bd\n".encode(),
    b"\xef\xbb\xbfa\tb\n",
]


@pytest.mark.parametrize("raw", ODD, ids=range(len(ODD)))
def test_odd_input_is_a_partition_too(tmp_path, raw):
    (tmp_path / "a.tsv").write_bytes(raw)
    kept, rejected, report = run(tmp_path, tmp_path / "a.tsv")
    n_lines = raw.count(b"\n") + (not raw.endswith(b"\n") and raw != b"")
    assert len(kept) + len(rejected) == report.read == n_lines


TEXT = st.text(st.characters(exclude_characters="\n\r"), max_size=30)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TEXT, TEXT), max_size=12))
def test_any_text_is_partitioned_in_order(tmp_path, pairs):
    source = write(tmp_path / "a.tsv", [(a.replace("\t", " "), b.replace("\t", " ")) for a, b in pairs])
    kept, rejected, report = run(tmp_path, source)
    assert len(kept) + len(rejected) == report.read == len(pairs)
    assert places(rejected) == sorted(set(places(rejected)))
    assert sum(report.dropped.values()) == len(rejected)


def test_what_was_there_stays_when_the_input_breaks(tmp_path):
    kept = tmp_path / "kept.tsv"
    kept.write_text("old\n")
    (tmp_path / "a.tsv.gz").write_bytes(b"\x1f\x8bbroken")
    with pytest.raises(ValueError, match="compressed file must be complete"):
        run(tmp_path, tmp_path / "a.tsv.gz")
    assert kept.read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv.gz", "kept.tsv"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (CleanSettings(skip=frozenset({"copies"})), r"'copies'.*copy"),
        (CleanSettings(threshold=1.5), "got 1.5"),
        (CleanSettings(max_chars=0), "got 0"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, wrong, words):
    with pytest.raises(ValueError, match=words):
        run(tmp_path, write(tmp_path / "a.tsv", [("a", "b")]), wrong)


def test_a_sample_is_uniform_and_does_not_depend_on_the_order(tmp_path):
    rows = [(f"a{n}", "b") for n in range(3000)]
    found = []
    for name, some in (("a", rows), ("b", rows[::-1] + rows[:100])):
        source = write(tmp_path / f"{name}.tsv", some)
        sample, n = take_sample(read_chunks([str(source)], "x", "y", lambda _: None), 500)
        found.append({chunk.lines for chunk in sample})
        assert n == len(some) and len(sample) == 500
    assert found[0] == found[1]
    numbers = [int(lines[0].split(b"\t")[0][1:]) for lines in found[0]]
    assert 1350 < np.mean(numbers) < 1650


def test_noise_is_made_of_other_pairs():
    pairs = translations(200)
    made = make_noise(pairs, random.Random(0))
    assert tuple(made) == KINDS
    own = dict(pairs)
    assert all(own[src] != tgt for src, tgt in made["misaligned"])
    assert all((src in own) != (tgt in own.values()) for src, tgt in made["truncated"])
    assert all(src == tgt for src, tgt in made["copy"])


def judgement(noise, odds):
    posteriors = np.array([[1 - noise, noise * 0.7, noise * 0.3, 0.0, 0.0]])
    line = ParsedLine("a", "b", "a\tb", "x, line 1")
    return Judgement(
        [line], np.zeros(1, np.uint8), posteriors, np.array([[odds, 0.0]]), np.zeros((2, 1), np.uint64),
        np.full((1, 2), np.nan),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("noise", "odds", "reason"),
    [(0.1, 0.0, None), (0.9, 0.0, "misaligned"), (0.5, 4.0, "language"), (0.01, 4.0, None), (0.99, 0.5, "misaligned")],
)
def test_language_and_noise_decide_together(noise, odds, reason):
    found = decide(judgement(noise, odds), 0.5, frozenset()).codes[0]
    assert found == (CODES[reason] if reason else 0)
    assert not foreign(judgement(noise, min(odds, 1.0)))[0]


def test_kinds_that_are_skipped_count_as_good():
    assert decide(judgement(0.9, 0.0), 0.5, frozenset({"misaligned"})).codes[0] == 0
    assert decide(judgement(0.9, 0.0), 0.2, frozenset({"misaligned"})).codes[0] == CODES["truncated"]


def test_languages_are_told_apart():
    identifier = LanguageIdentifier()
    assert identifier.guess(["This is a sentence.", "Here is another one."]) == "en"
    assert identifier.odds("Das ist ein deutscher Satz und kein englischer.", "en") > 3
    assert identifier.odds("This is an English sentence and no other.", "en") < 0
    assert identifier.odds("日本語の文章です。", "zh") > 1 > identifier.odds("这是中文。", "zh")
    assert identifier.odds("42", "en") == 0
    assert identifier.name("zh-CN") == identifier.name("cmn") == "zh"
    with pytest.raises(ValueError, match=r"got 'eg', is it"):
        identifier.name("eg")


def test_the_report_is_json_with_samples(tmp_path):
    source = write(tmp_path / "a.tsv", [("", str(n)) for n in range(40)])
    *_, report = run(tmp_path, source)
    table = json.loads(json.dumps(report.to_json()))
    assert table["dropped"] == {"empty": 40} and table["read"] == 40
    assert len(table["samples"]["empty"]) == 5 and table["samples"]["empty"][0]["where"].startswith(str(source))

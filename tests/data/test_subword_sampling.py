"""Segmentations by chance: against all that are possible, against SentencePiece, and the same whoever draws them."""

import math
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.config import TextSettings
from regard.data import subword_sampling as module
from regard.data.normalise import normalise
from regard.data.subword_sampling import (
    END,
    OPEN,
    Automaton,
    BPEDropout,
    ChunkSplitter,
    SegmentationSampler,
    Transition,
    UnigramLattice,
    ranges,
)
from regard.data.tokenizer import PieceType, parse_model
from regard.data.vocabulary import train_tokenizer
from tests.data.corpora import any_text, sentences

PAIRS = sentences(200)
TEXTS = [
    *(side for pair in PAIRS for side in pair),
    "",
    "a",
    "☃☃ x 𠀀𠀁",
    "aaaaaaaaaaaaaaaaaaaaaaaaa",
    "<bt> the<bt>city <bt",
]
KINDS = ["unigram", "bpe"]
PLAIN = {"unigram": 1e5, "bpe": 0.0}  # strengths without chance


@cache
def make(kind="unigram", byte_fallback=True):
    chosen = TextSettings(kind=kind, vocab_size=460, byte_fallback=byte_fallback, symbols=("<bt>", "<b"))
    return train_tokenizer(PAIRS, chosen, lambda message: None, seed=1)


def draw(tokenizer, texts, n, strength, seed=1):
    """Return n segmentations of each text, as lists."""
    cuts = SegmentationSampler(tokenizer.models[0], strength).sample(
        [normalise(text) for text in texts], n, np.random.default_rng(seed)
    )
    assert cuts.lengths.shape == (len(texts), n)
    flat = iter(np.split(cuts.ids, np.cumsum(cuts.lengths)[:-1]))
    return [[next(flat).tolist() for _ in range(n)] for _ in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_what_the_library_says(kind):
    processor, result = make(kind)._processor("src"), parse_model(make(kind).models[0])
    assert result.is_bpe == (kind == "bpe")
    assert [piece.text for piece in result.pieces] == [processor.id_to_piece(i) for i in range(processor.vocab_size())]
    assert [piece.score for piece in result.pieces] == [processor.get_score(i) for i in range(processor.vocab_size())]
    for i, piece in enumerate(result.pieces):
        outputs = (processor.is_unknown(i), processor.is_control(i), processor.is_byte(i), processor.is_unused(i))
        assert outputs == tuple(
            piece.kind is kind for kind in (PieceType.UNKNOWN, PieceType.CONTROL, PieceType.BYTE, PieceType.UNUSED)
        )
    assert result.symbols == ["<bt>", "<b"]
    assert make(kind).symbols == {"<bt>", "<b"}


@given(spans=st.lists(st.tuples(st.integers(-5, 9), st.integers(0, 4)), max_size=6))
def test_ranges_follow_each_other(spans):
    starts, lengths = (np.array([span[k] for span in spans], dtype=np.int64) for k in (0, 1))
    assert ranges(starts, lengths).tolist() == [i for start, n in spans for i in range(start, start + n)]


@given(
    pieces=st.lists(st.text("ab▁介", min_size=1, max_size=4), max_size=6),
    texts=st.lists(st.lists(st.text("abx介", min_size=1, max_size=5), max_size=3).map(" ".join), max_size=4),
)
def test_no_piece_lies_across_a_cut_and_symbols_are_whole(pieces, texts):
    symbols = ["xa", "xab"]
    chunks, counts = ChunkSplitter(pieces, symbols).split(texts)
    assert len(counts) == len(texts)
    rest = iter(chunks)
    within = {piece[i : i + 2] for piece in pieces for i in range(len(piece) - 1)}
    for text, count in zip(texts, counts, strict=True):
        mine = [next(rest) for _ in range(count)]
        assert "".join(mine) == ("▁" + text.replace(" ", "▁") if text else "")
        for a, b in pairwise(mine):
            assert a[-1] + b[0] not in within or a in symbols or b in symbols
        for chunk in mine:
            assert chunk in symbols or "xa" not in chunk
            assert chunk in symbols or all(chunk[i : i + 2] in within for i in range(len(chunk) - 1))


def chances(parts, state):
    """Follow all transitions from a state: the probability of each sequence of ids, exactly."""
    result, automaton = defaultdict(float), parts.automaton
    first = int(np.searchsorted(automaton.keys, state, side="right"))
    option, before = first, float(state)
    while option < len(automaton.keys) and automaton.keys[option] <= state + 1 and before < state + 1:
        chance, before = automaton.keys[option] - before, automaton.keys[option]
        if chance > 0:
            if automaton.targets[option] == OPEN:
                parts.expand(option)
            start, target = automaton.starts[option], automaton.targets[option]
            ids = tuple(automaton.ids[start : start + automaton.lengths[option]])
            rest = {(): 1.0} if target == END else chances(parts, target)
            for tail, share in rest.items():
                result[ids + tail] += chance * share
        option += 1
    return dict(result)


def spell(piece):
    return [ord(sign) for sign in piece] + [0]


def segmentations(chunk, scores):
    if not chunk:
        yield ()
    for n in range(1, len(chunk) + 1):
        if n == 1 or chunk[:n] in scores:
            for rest in segmentations(chunk[n:], scores):
                yield (chunk[:n], *rest)


def assert_alike(result, expected):
    expected = {way: chance for way, chance in expected.items() if chance > 1e-6}
    assert {way for way, chance in result.items() if chance > 1e-6} >= set(expected)
    for way, chance in expected.items():
        assert abs(result[way] - chance) < 1e-6, way


SCORES = st.dictionaries(st.text("ab", min_size=1, max_size=4), st.floats(-9, -0.5), max_size=8)


@settings(max_examples=60)
@given(chunk=st.text("abc", min_size=1, max_size=6), scores=SCORES, alpha=st.sampled_from([0.1, 0.5, 1.0]))
def test_a_lattice_draws_by_the_power_of_the_probability(chunk, scores, alpha):
    lattice = UnigramLattice(scores, spell, alpha)
    unknown = min(scores.values(), default=0.0) - 10
    weights = {
        tuple(i for piece in way for i in spell(piece)): math.exp(alpha * sum(scores.get(p, unknown) for p in way))
        for way in segmentations(chunk, scores)
    }
    total = sum(weights.values())
    assert_alike(chances(lattice, lattice.add(chunk)), {way: weight / total for way, weight in weights.items()})


def merge_by_hand(parts, dropout, scores, refused=frozenset()):
    """Return what BPE dropout makes of parts [(begin, text)], straight from its description."""
    pairs = [(a, b) for a, b in pairwise(parts) if a[1] + b[1] in scores and (a, b) not in refused]
    if not pairs:
        return {tuple(i for _, text in parts for i in spell(text)): 1.0}
    best = max(pairs, key=lambda pair: (scores[pair[0][1] + pair[1][1]], -pair[0][0]))
    at = parts.index(best[0])
    merged = [*parts[:at], (best[0][0], best[0][1] + best[1][1]), *parts[at + 2 :]]
    result = defaultdict(float)
    for chance, after, no in ((1 - dropout, merged, refused), (dropout, parts, refused | {best})):
        for way, share in merge_by_hand(after, dropout, scores, no).items():
            result[way] += chance * share
    return result


@settings(max_examples=60)
@given(
    chunk=st.text("ab", min_size=1, max_size=5),
    order=st.lists(st.text("ab", min_size=2, max_size=4), max_size=6, unique=True),
    dropout=st.sampled_from([0.0, 0.25, 1.0]),
)
@example(chunk="abcde", order=["bc", "bcd", "de"], dropout=0.25)
def test_merges_are_left_out_as_the_paper_says(chunk, order, dropout):
    scores = {piece: -float(rank) for rank, piece in enumerate(order)}
    merges = BPEDropout(scores, spell, dropout)
    expected = merge_by_hand(list(enumerate(chunk)), dropout, scores)
    assert_alike(chances(merges, merges.add(chunk)), expected)


@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_without_chance_it_is_the_plain_segmentation(kind, byte_fallback):
    tokenizer = make(kind, byte_fallback)
    result = draw(tokenizer, TEXTS, 2, PLAIN[kind])
    scores = [piece.score for piece in parse_model(tokenizer.models[0]).pieces]
    for text, plain, drawn in zip(TEXTS, tokenizer.encode_batch(TEXTS, "src"), result, strict=True):
        for ids in drawn:
            # Two segmentations may be equally likely: "aa a" and "a aa".
            alike = kind == "unigram" and abs(sum(scores[i] for i in ids) - sum(scores[i] for i in plain)) < 1e-3
            assert ids == plain or alike, text


@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text("▁▅ \t\u3000<s/>0x41⁇，。！？“”ＡﬁÅe\u0301\u200d𠀀😀\ud800<bt>"), seed=st.integers(0, 99))
def test_every_variant_is_the_same_text(kind, text, seed):
    tokenizer = make(kind)
    [drawn] = draw(tokenizer, [text], 3, 0.4, seed)
    for ids in drawn:
        assert tokenizer.decode(ids, "src") == normalise(text)
        assert all(3 < i < tokenizer.vocab_size("src") for i in ids)


@pytest.mark.parametrize("strength", [0.1, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_as_frequent_as_in_the_library(kind, strength):
    tokenizer, n = make(kind), 200
    texts = [side for pair in PAIRS[:20] for side in pair]
    mine = Counter(i for drawn in draw(tokenizer, texts, n, strength) for ids in drawn for i in ids)
    library = tokenizer._processor("src").encode
    theirs = Counter(
        i for _ in range(n) for ids in library(texts, enable_sampling=True, nbest_size=-1, alpha=strength) for i in ids
    )
    n_mine, n_theirs = sum(mine.values()), sum(theirs.values())
    assert abs(n_mine / n_theirs - 1) < 0.01
    for i in mine | theirs:
        # Counts scatter less than Poisson's; seven of its standard deviations are beyond chance.
        assert abs(mine[i] - theirs[i]) < 7 * math.sqrt(mine[i] + theirs[i] + 1), tokenizer.pieces([i], "src")


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_are_never_split(kind):
    tokenizer = make(kind)
    symbol = tokenizer.encode("<bt>", "src")[-1]
    assert tokenizer.pieces([symbol], "src") == ["<bt>"]
    text = "<bt> the city<bt>介绍 <bt>"
    for ids in (*draw(tokenizer, [text], 50, 1.0 if kind == "bpe" else 0.01)[0], tokenizer.encode(text, "src")):
        assert ids.count(symbol) == 3
        assert tokenizer.decode(ids, "src") == text


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_depends_on_texts_and_generator_alone(kind, monkeypatch):
    tokenizer, texts = make(kind), TEXTS[:60]
    first = draw(tokenizer, texts, 3, 0.3)
    assert draw(tokenizer, texts, 3, 0.3, seed=2) != first
    assert any(len({tuple(ids) for ids in drawn}) > 1 for drawn in first)
    used = SegmentationSampler(tokenizer.models[0], 0.3)
    used.sample(TEXTS, 5, np.random.default_rng(7))  # has seen other chunks before
    again = used.sample([normalise(text) for text in texts], 3, np.random.default_rng(1))
    assert again.ids.tolist() == [i for drawn in first for ids in drawn for i in ids]
    monkeypatch.setattr(module, "MAX_TRANSITIONS", 10)
    forgetful = used.sample([normalise(text) for text in texts], 3, np.random.default_rng(1))
    assert forgetful.ids.tolist() == again.ids.tolist()
    assert len(used.states) < len(TEXTS) * 20


def test_what_has_no_chance_is_never_taken():
    class Lowest(np.random.Generator):
        def random(self, size, dtype):
            return np.zeros(size, dtype)

    automaton = Automaton()
    state = automaton.add_state([Transition(0.0, END, [5]), Transition(1.0, END, [6])])
    ids, lengths = automaton.sample(np.array([state]), Lowest(np.random.PCG64(1)), lambda option: None)
    assert (ids.tolist(), lengths.tolist()) == ([6], [1])


def test_unknown_pieces_run_together_within_a_text_alone():
    sampler = SegmentationSampler(make("unigram", byte_fallback=False).models[0], 0.5)
    ids, upto = sampler._without_runs(np.array([1, 1, 1, 7, 1]), np.array([0, 1, 3, 5]))
    assert (ids.tolist(), upto.tolist()) == ([1, 1, 7, 1], [0, 1, 2, 4])


PROGRAM = """
import sys, numpy as np
from regard.data.subword_sampling import SegmentationSampler
model = open(sys.argv[1], "rb").read()
texts = ["please introduce the city", "介绍一下西安"]
cuts = SegmentationSampler(model, 0.3).sample(texts, 9, np.random.default_rng(3))
print(cuts.ids.tolist())
"""


@pytest.mark.parametrize("kind", KINDS)
def test_another_process_draws_the_same(tmp_path, kind):
    (tmp_path / "model").write_bytes(make(kind).models[0])
    mine = draw(make(kind), ["please introduce the city", "介绍一下西安"], 9, 0.3, seed=3)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "model")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    assert result.strip() == str([i for drawn in mine for ids in drawn for i in ids])

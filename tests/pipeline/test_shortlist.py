"""Shortlists: a search among some words is a search of the model that knows no others.

Word translation by counting: equal to the plain definition, and right where there is one answer.
"""

import copy
import tracemalloc

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import regard
from regard.config import DecodeSettings
from regard.engine import select_engine
from regard.engine.cuda import CudaEngine
from regard.engine.plain import PlainDecoder, PlainEngine
from regard.native import UnavailableError, open_library
from regard.padding import EOS
from regard.pipeline.shortlist import Shortlist, load_shortlist
from regard.pipeline.shortlist_learning import (
    Links,
    best_targets,
    learn_shortlist,
    save_shortlist,
    translation_chances,
)
from regard.search import SEARCH
from tests.engine.test_native import SRC, V, exact, made

try:
    open_library()
except UnavailableError as error:
    pytest.skip(f"there is no compiled code to be tested: {error}", allow_module_level=True)

SEARCHES = [{"method": "greedy"}, {"beam": 4, "n_best": 3}, {"beam": 3, "length_penalty": 0.0}]


def knowing(model, words):
    """Gives the model in float64 with no chance for other words."""
    model, others = exact(model), torch.ones(V, dtype=torch.bool)
    others[words] = False
    plain = model.output.forward
    model.output.forward = lambda x: plain(x).masked_fill(others, -torch.inf)
    return model


@pytest.mark.parametrize("changes", SEARCHES, ids=str)
@pytest.mark.parametrize("n_words", [2, 3, 17, 33, V - EOS])
def test_a_search_among_some_words_knows_no_others(n_words, changes):
    model, settings = made(32, 4, tie="none"), DecodeSettings(max_ratio=2.0, max_extra=5, **changes)
    draw = torch.Generator().manual_seed(n_words)
    words = torch.cat(
        [torch.tensor([EOS]), EOS + 1 + torch.randperm(V - EOS - 1, generator=draw)[: n_words - 1]]
    ).sort()[0]
    plain = SEARCH[settings.method](PlainDecoder(knowing(model, words)), SRC, settings, None)
    found = select_engine(model).search_batch(SRC, settings, vocabulary=lambda sources: words.numpy())
    for some, others in zip(found, plain, strict=True):
        assert [each.ids for each in some] == [each.ids for each in others]
        assert_close([each.score for each in some], [each.score for each in others], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_all_words_are_as_no_list(precision):
    engine, settings = select_engine(made(66, 2, 130), precision), DecodeSettings(beam=3, n_best=2)
    words = np.arange(EOS, V)
    found = [engine.search_batch(SRC, settings, vocabulary=each) for each in (None, lambda sources: words)]
    assert [[each.ids for each in some] for some in found[0]] == [[each.ids for each in some] for some in found[1]]


def test_words_that_are_none_are_refused():
    with pytest.raises(IndexError, match="outside of the vocabulary"):
        select_engine(made()).search_batch(SRC, DecodeSettings(), vocabulary=lambda sources: np.array([EOS, V]))


def test_what_may_be_said_is_what_is_frequent_suggested_and_copied():
    table = np.array([[-1, -1], [9, 5], [5, -1], [7, 2], [8, 9]], np.int32)
    listed = Shortlist(np.array([EOS, 6], np.int32), table, copies=False)
    assert listed.words([[1], [2, 3]]).tolist() == [EOS, 5, 6, 7, 9]
    assert Shortlist(listed.always, table, copies=True).words([[1, 4]]).tolist() == [EOS, 4, 5, 6, 8, 9]
    assert listed.words([[]]).tolist() == [EOS, 6]


PAIRS = [("我喜欢音乐。", "I like music."), ("他喜欢茶。", "He likes tea."), ("我喝茶。", "I drink tea.")] * 3


@pytest.fixture(scope="module")
def translator():
    return regard.load("zh-en")


def test_a_file_brings_back_what_was_learned(translator, tmp_path):
    learned = learn_shortlist(translator.tokenizer, PAIRS, frequent=4, each=5)
    assert len(learned.always) <= 5 and EOS in learned.always
    save_shortlist(learned, tmp_path / "words")
    again = load_shortlist(tmp_path / "words", translator.tokenizer)
    assert np.array_equal(again.always, learned.always) and np.array_equal(again.table, learned.table)
    assert again.copies == translator.tokenizer.joint
    tea = translator.tokenizer.encode("茶", "src")[-1]
    assert translator.tokenizer.encode("tea", "tgt")[0] in learned.table[tea]


def test_a_translator_says_nothing_else(translator, tmp_path):
    learned = learn_shortlist(translator.tokenizer, PAIRS, frequent=500, each=20)
    save_shortlist(learned, tmp_path / "words")
    short = regard.load("zh-en", shortlist=tmp_path / "words")
    said = short.translate("我喜欢茶。")[0]
    allowed = short.shortlist.words([short.tokenizer.encode("我喜欢茶。", "src")])
    assert len(allowed) < 100 and said.text == "I like tea."
    for refused in (lambda: short.translate("我喜欢茶。", prefix="Tea"), lambda: regard.trace(short, "我喜欢茶。")):
        with pytest.raises(ValueError, match="greedy and beam search without prefix and trace"):
            refused()


def test_models_that_cannot_use_it_say_so(translator):
    """Those for a GPU among them, which have a search of their own."""
    plain = translator.model
    for engine in (PlainEngine(plain), CudaEngine(plain), select_engine(exact(plain))):
        short = copy.copy(translator)
        short.engine, short.shortlist = engine, Shortlist(np.array([EOS]), np.zeros((14000, 1), np.int32), copies=False)
        with pytest.raises(ValueError, match="in compiled code on a CPU"):
            short.translate("我喜欢茶。")


def test_files_of_other_pieces_are_refused(translator, tmp_path):
    table = np.full((7, 2), -1, np.int32)
    save_shortlist(Shortlist(np.array([EOS], np.int32), table, copies=False), tmp_path / "other")
    with pytest.raises(ValueError, match="of other pieces than the model's"):
        load_shortlist(tmp_path / "other", translator.tokenizer)
    with pytest.raises(ValueError, match="from sentence pairs, got none"):
        learn_shortlist(translator.tokenizer, [])


LEXICON_SRC = [[1, 2], [2, 3], [1, 3], [2], [1, 2, 2]]
TGT = [[11, 12], [13, 12], [11, 13, 14], [12, 14], []]
NOTHING = 4


def by_definition(src, tgt, rounds):
    """Gives t(target | source) by loops over sentences, pieces and links."""
    chances = {(s, t): 1.0 for S, T in zip(src, tgt, strict=True) for s in (NOTHING, *S) for t in T}
    for _ in range(rounds):
        counts, totals = dict.fromkeys(chances, 0.0), {}
        for S, t in ((S, t) for S, T in zip(src, tgt, strict=True) for t in T):
            total = sum(chances[s, t] for s in (NOTHING, *S))
            for s in (NOTHING, *S):
                counts[s, t] += chances[s, t] / total
                totals[s] = totals.get(s, 0.0) + chances[s, t] / total
        chances = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return chances


@pytest.mark.parametrize("rounds", [0, 1, 2, 7])
def test_chances_equal_the_definition(rounds):
    links = Links(LEXICON_SRC, TGT, NOTHING)
    kinds = zip(links.src.tolist(), links.tgt.tolist(), strict=True)
    found = dict(zip(kinds, translation_chances(links, rounds), strict=True))
    expected = by_definition(LEXICON_SRC, TGT, rounds)
    assert found.keys() == expected.keys()
    assert np.allclose([found[pair] for pair in expected], list(expected.values()))


@pytest.mark.parametrize("chunk", [1, 7, 50, 1000])
def test_chances_do_not_depend_on_the_chunks(chunk):
    """To the last bit: sums are taken in the order of the links."""
    draw = np.random.default_rng(1)
    src, tgt = ([draw.integers(4, 23, draw.integers(0, 7)).tolist() for _ in range(83)] for _ in range(2))
    whole, cut = Links(src, tgt, nothing=23), Links(src, tgt, nothing=23, chunk=chunk)
    sizes = [len(kind) for kind, _ in cut.chunks()]
    n_links = sum((len(some) + 1) * len(others) for some, others in zip(src, tgt, strict=True))
    assert len(sizes) > 1 and sum(sizes) == len(whole.kind) == n_links
    assert max(sizes) < chunk + 7 * 6, "a chunk ends with the sentence that fills it"
    assert np.array_equal(whole.src, cut.src) and np.array_equal(whole.tgt, cut.tgt)
    assert np.array_equal(translation_chances(whole), translation_chances(cut))


def test_memory_does_not_grow_with_the_links():
    """Two corpora of the same pieces, the second 16 times as long, in chunks of the same size."""

    def peak(n_pairs):
        sentences = [list(range(4, 44))] * n_pairs
        tracemalloc.start()
        try:
            translation_chances(Links(sentences, sentences, nothing=44, chunk=2**13), rounds=1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(320) < 1.5 * peak(20)


def test_no_links_have_no_chances():
    links = Links([[4], [5]], [[], []], nothing=6)
    assert list(translation_chances(links)) == [] and (best_targets(links, np.zeros(0), 6, 2) == -1).all()


def test_a_planted_dictionary_is_found():
    draw = np.random.default_rng(0)
    src = [draw.permutation(40)[: draw.integers(1, 7)].tolist() for _ in range(400)]
    tgt = [draw.permutation([100 + piece for piece in ids]).tolist() for ids in src]
    links = Links(src, tgt, nothing=40)
    table = best_targets(links, translation_chances(links), 40, 3)
    assert table[:, 0].tolist() == [100 + piece for piece in range(40)]


def test_the_best_come_first_and_gaps_are_told():
    links = Links([[0], [0], [1]], [[5], [5, 6], []], nothing=3)
    table = best_targets(links, translation_chances(links), 3, 3)
    assert table.tolist() == [[5, 6, -1], [-1, -1, -1], [-1, -1, -1]]

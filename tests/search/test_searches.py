"""Laws of every search in the table."""

import pytest
import torch

from regard.config import PartSettings
from regard.engine import plain
from regard.padding import BOS, EOS, PAD, UNK
from regard.search import SEARCH
from tests.search.models import (
    FAMILIES,
    SOURCES,
    WORDS,
    Constant,
    Counting,
    Echo,
    find,
    make_model,
    same,
    teacher_forced,
)

KINDS = [("greedy", {}), ("beam", {"beam": 3, "n_best": 2}), ("sample", {"n_best": 3, "seed": 5})]
ids = [method for method, _ in KINDS]


def test_every_search_of_the_table_is_tested():
    assert set(ids) == set(SEARCH)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
@pytest.mark.parametrize("seed", range(2))
def test_batch_size_and_order_do_not_matter(family, method, changes, seed):
    model = make_model(family, seed, vocab_size=17)
    together = find(model, SOURCES, method=method, limit=4, **changes)
    alone = [find(model, [source], method=method, limit=4, **changes)[0] for source in SOURCES]
    backwards = find(model, SOURCES[::-1], method=method, limit=4, **changes)[::-1]
    some = [2, 0, 5]
    same(together, alone)
    same(together, backwards)
    same([together[i] for i in some], find(model, [SOURCES[i] for i in some], method=method, limit=4, **changes))
    assert len({tuple(found[0].ids) for found in together}) > 1, "these models say the same to everything"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_scores_are_the_models_own_log_probabilities(family, method, changes):
    model = make_model(family, seed=1)
    for source, found in zip(SOURCES, find(model, SOURCES, method=method, length_penalty=0.7, **changes), strict=True):
        for each in found:
            said = [*each.ids, EOS] if each.finished else each.ids
            exact = teacher_forced(model, source, each.ids)[range(len(said)), said]
            torch.testing.assert_close(each.token_log_probs, exact.tolist(), rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(each.log_prob, exact.sum().item())
            torch.testing.assert_close(each.score, exact.sum().item() / len(said) ** 0.7)


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_the_best_come_first_and_finished_before_unfinished(method, changes):
    both = set()
    for seed in range(8):
        for found in find(make_model(seed=seed), SOURCES, method=method, limit=3, **changes):
            assert len(found) == changes.get("n_best", 1)
            order = [(each.finished, each.score) for each in found]
            assert order == sorted(order, reverse=True)
            both |= {each.finished for each in found}
    assert both == {True, False}


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_padding_beginnings_and_unknowns_are_never_said(method, changes):
    model = Constant([9.0, 9.0, 9.0, 0.0, 1.0, 0.5])
    for each in find(model, [[4], [5]], method=method, limit=6, **changes)[0]:
        assert not set(each.ids) & {PAD, UNK, BOS, EOS}
        assert all(log_prob < -8 for log_prob in each.token_log_probs), "what is never said still has its probability"


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_targets_begin_with_their_prefix_which_counts(method, changes):
    model, prefix = make_model(seed=4), [[5, 5], [], [6], [4, 6, 4], [], [UNK]]
    found = find(model, SOURCES, prefix, method=method, **changes)
    for source, forced, hypotheses in zip(SOURCES, prefix, found, strict=True):
        assert len(hypotheses) == changes.get("n_best", 1)
        for each in hypotheses:
            assert each.ids[: len(forced)] == forced
            exact = teacher_forced(model, source, each.ids)[range(len(forced)), forced]
            torch.testing.assert_close(each.token_log_probs[: len(forced)], exact.tolist(), rtol=1e-9, atol=1e-9)
    free = find(model, SOURCES, method=method, **changes)
    same([found[1], found[4]], [free[1], free[4]])


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_a_prefix_has_room_even_beyond_the_limit(method, changes):
    long = [4, 5, 6, 4, 5, 6]
    for each in find(make_model(), [[4]], [long], method=method, limit=2, **changes)[0]:
        assert each.ids[:6] == long
        assert len(each.token_log_probs) == 7


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_finished_sentences_leave_the_batch(method, changes, monkeypatch):
    monkeypatch.setattr(plain, "LEAST_ROWS", 1)  # no row is there but for a sentence
    model, lengths = Counting(Echo(vocab_size=11)), 4 * [4, 9, 4, 6]
    found = find(model, [[5] * n for n in lengths], method=method, limit=20, **changes)
    assert [some[0].ids for some in found] == [[5] * n for n in lengths]
    N = changes.get("beam", changes.get("n_best", 1))
    if method == "beam":  # it looks for as many ends as it keeps hypotheses, and so runs on for some steps
        assert model.rows == sorted(model.rows, reverse=True)
        assert set(model.rows) == {16 * N, 8 * N, 4 * N}
    else:
        assert model.rows == [16 * N] * 5 + [8 * N] * 2 + [4 * N] * 3


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_no_sentences_are_no_hypotheses(method, changes):
    assert find(make_model(), [], method=method, **changes) == []


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_limits_follow_the_source(method, changes):
    model = Constant([0.0, 0.0, 0.0, -90.0, 1.0, 0.5, 0.7, 0.9])
    found = find(model, [[4], [4, 4, 4]], method=method, max_ratio=1.5, max_extra=2, **changes)
    assert [[len(each.ids) for each in some] for some in found] == [[5] * len(found[0]), [8] * len(found[0])]
    assert not any(each.finished for some in found for each in some)


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_a_search_leaves_no_trace_in_the_model(method, changes):
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    find(model, SOURCES, method=method, **changes)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.parameters())


WRONG = [
    ({"method": "beam", "beam": 0}, "beam must be 1 or more, got 0"),
    ({"method": "beam", "beam": 2, "n_best": 3}, "n_best must lie between 1 and beam, got 3 and 2"),
    ({"method": "beam", "n_best": 0}, "n_best must lie between 1 and beam, got 0 and 5"),
    ({"method": "greedy", "n_best": 4}, "greedy search finds one hypothesis, got n_best 4: use 'beam' or 'sample'"),
    ({"method": "sample", "n_best": 0}, "n_best must be 1 or more, got 0"),
    ({"method": "sample", "temperature": 0.0}, r"temperature must be above 0, got 0.0: .* use 'greedy'"),
    ({"method": "sample", "top_k": 0}, "top_k must be 1 or more, got 0"),
    ({"method": "sample", "top_p": 0.0}, r"top_p must lie in \(0, 1\], got 0.0"),
    ({"method": "sample", "top_p": 1.5}, r"top_p must lie in \(0, 1\], got 1.5"),
    ({"max_ratio": -1.0}, "max_ratio and max_extra must be 0 or more, got -1.0 and 5"),
    ({"max_extra": -2}, "max_ratio and max_extra must be 0 or more, got 0.0 and -2"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_settings_that_cannot_be_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        find(make_model(), SOURCES, **changes)


@pytest.mark.parametrize("token", [PAD, BOS, EOS])
def test_a_prefix_with_special_tokens_is_refused(token):
    with pytest.raises(ValueError, match=f"a prefix must hold tokens of text, .* got id {token} in prefix 1"):
        find(make_model(), [[4], [5]], [[4], [5, token]])


def test_a_prefix_for_another_number_of_sentences_is_refused():
    with pytest.raises(ValueError, match="one prefix for each sentence, got 1 for 2"):
        find(make_model(), [[4], [5]], [[4]])


@pytest.mark.parametrize(("method", "changes"), KINDS, ids=ids)
def test_no_target_is_longer_than_the_models_positions_reach(method, changes):
    model = make_model(seed=0, position=PartSettings("learned", {"max_len": 6}))
    assert model.limit == 6
    with torch.no_grad():
        model.output.table.weight[EOS] = 0.0
        model.output.table.weight[list(WORDS)] *= 5.0  # it hardly ever ends by itself
    found = find(model, SOURCES, method=method, limit=30, **changes)
    assert max(len(each.ids) + each.finished for hypotheses in found for each in hypotheses) == 6

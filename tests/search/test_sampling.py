"""Samples: reproducible, independent of the batch, and as frequent as they are probable."""

from collections import Counter

import pytest
import torch

from regard.padding import EOS
from tests.search.models import SOURCES, Constant, find, make_model, same
from tests.search.test_beam import LIMIT, brute_force

N = 3000


def test_the_same_seed_gives_the_same_samples_and_another_gives_others():
    model = make_model(vocab_size=13)
    first = find(model, SOURCES, method="sample", seed=3, limit=9)
    same(find(model, SOURCES, method="sample", seed=3, limit=9), first)
    other = find(model, SOURCES, method="sample", seed=4, limit=9)
    assert [some[0].ids for some in other] != [some[0].ids for some in first]


def test_chance_outside_does_not_matter():
    model = make_model(vocab_size=13)
    torch.manual_seed(1)
    first = find(model, SOURCES, method="sample", limit=9)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    same(find(model, SOURCES, method="sample", limit=9), first)
    torch.testing.assert_close(torch.get_rng_state(), state, rtol=0, atol=0)


def test_samples_of_one_sentence_differ_and_more_of_them_begin_with_the_fewer():
    model = make_model(vocab_size=13)
    few, many = (find(model, SOURCES[:1], method="sample", n_best=n, limit=9)[0] for n in (3, 7))
    assert len({tuple(each.ids) for each in many}) > 3
    assert {tuple(each.ids) for each in few} <= {tuple(each.ids) for each in many}


def test_sentences_of_the_same_words_in_another_order_get_other_chances():
    model = Constant([0.0] * 40)
    found = find(model, [[4, 5], [5, 4]], method="sample", limit=9)
    assert found[0][0].ids != found[1][0].ids


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("changes", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}], ids=str)
def test_without_a_choice_a_sample_is_greedy(seed, changes):
    model = make_model(seed=seed, vocab_size=13)
    greedy = find(model, SOURCES, method="greedy", limit=5)
    same(find(model, SOURCES, method="sample", limit=5, seed=seed, **changes), greedy)


def chi_square(counts, expected):
    """Compares counts with probabilities; outcomes expected fewer than five times are taken together."""
    rare = {outcome for outcome, p in expected.items() if p * N < 5}
    cells = [(counts[outcome], p * N) for outcome, p in expected.items() if outcome not in rare]
    cells += [(sum(counts[each] for each in rare), sum(expected[each] for each in rare) * N)] if rare else []
    return sum((n - mean) ** 2 / mean for n, mean in cells if mean), len(cells) - 1


def probabilities(logits, temperature=1.0, top_k=None, top_p=None):
    """Says what a step should be drawn from."""
    p = (torch.tensor(logits[EOS:], dtype=torch.float64) / temperature).softmax(0)
    order = p.argsort(descending=True).tolist()
    kept = order[: top_k or len(order)]
    p = {token: p[token].item() for token in kept}
    if top_p is not None:
        total, kept = sum(p.values()), []
        while sum(p[token] for token in kept) / total < top_p:
            kept.append(order[len(kept)])
    total = sum(p[token] for token in kept)
    return {token + EOS: p[token] / total for token in kept}


CUTS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 2},
    {"top_p": 0.6},
    {"top_k": 4, "top_p": 0.8, "temperature": 1.5},
]


@pytest.mark.parametrize("changes", CUTS, ids=str)
def test_tokens_are_as_frequent_as_they_are_probable(changes):
    logits = [2.0, 3.0, 2.0, 0.3, 1.0, -0.5, 0.1, 0.8]
    found = find(Constant(logits), [[4]], method="sample", n_best=N, limit=1, **changes)[0]
    counts = Counter(each.ids[0] if each.ids else EOS for each in found)
    expected = probabilities(logits, **changes)
    assert set(counts) == set(expected)
    distance, freedom = chi_square(counts, expected)
    assert distance < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_sentences_are_as_frequent_as_they_are_probable(family):
    model = make_model(family, seed=2, sharp=1.0)
    with torch.no_grad():  # what is never said has no probability here
        model.output.table.weight[:EOS] = 0.0
    found = find(model, [[5, 4]], method="sample", n_best=N, limit=LIMIT)[0]
    counts = Counter((tuple(each.ids), each.finished) for each in found)
    all_of_them = brute_force(SaysOnly(model), [5, 4], 1.0)
    expected = {(tuple(each.ids), each.finished): torch.tensor(each.log_prob).exp().item() for each in all_of_them}
    torch.testing.assert_close(sum(expected.values()), 1.0, rtol=1e-5, atol=1e-5)
    distance, freedom = chi_square(counts, expected)
    assert freedom > 20
    assert distance < freedom + 4 * (2 * freedom) ** 0.5


class SaysOnly(torch.nn.Module):
    """A model without the tokens that are never said."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch):
        logits = self.model(batch).clone()
        logits[..., :EOS] = -torch.inf
        return logits

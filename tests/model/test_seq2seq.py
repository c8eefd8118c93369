"""What may be said next, and the largest entries of long rows."""

import pytest
import torch

from regard.model import seq2seq as room
from regard.model.seq2seq import allowed_log_probs, label_log_probs, log_probs, top_k
from regard.padding import EOS, PAD
from tests.parts import noise


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_these_are_log_probabilities_in_full_precision(dtype):
    logits = noise(3, 11, seed=1).to(dtype)
    said = allowed_log_probs(logits, None)
    assert said.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(said[:, EOS:], logits.to(said.dtype).log_softmax(-1)[:, EOS:])
    assert (said[:, :EOS] == -torch.inf).all()


def test_the_logits_stay_as_they_were():
    logits = noise(3, 11, seed=1)
    before = logits.clone()
    allowed_log_probs(logits, torch.tensor([PAD, 7, 4]))
    torch.testing.assert_close(logits, before, rtol=0, atol=0)


def test_a_forced_token_is_the_only_one_and_keeps_its_probability():
    logits = noise(3, 11, seed=1)
    said, free = allowed_log_probs(logits, torch.tensor([PAD, 7, 4])), allowed_log_probs(logits, None)
    torch.testing.assert_close(said[0], free[0], rtol=0, atol=0)
    assert (said[1:] != -torch.inf).nonzero().tolist() == [[0, 7], [1, 4]]
    torch.testing.assert_close(said[[1, 2], [7, 4]], free[[1, 2], [7, 4]], rtol=0, atol=0)


@pytest.mark.parametrize("k", [1, 2, 6])
@pytest.mark.parametrize("V", [1024, 1024 + 37, 4099])
def test_the_search_in_blocks_finds_what_topk_finds(k, V, monkeypatch):
    x = noise(29, V, seed=V)
    x[0, -3:] += 9.0  # some of the largest stand after the last whole block
    expected = x.topk(k)
    for blocks_from in (0, 10**9):
        monkeypatch.setattr(room, "BLOCKS_FROM", blocks_from)
        found = top_k(x, k)
        torch.testing.assert_close(found[0], expected.values, rtol=0, atol=0)
        torch.testing.assert_close(found[1], expected.indices, rtol=0, atol=0)


def test_rows_of_forbidden_tokens_are_searched_too(monkeypatch):
    monkeypatch.setattr(room, "BLOCKS_FROM", 0)
    x = torch.full((2, 1000), -torch.inf)
    x[0, 7], x[1, 999] = 1.0, 2.0
    largest, at = top_k(x, 3)
    assert at[:, 0].tolist() == [7, 999]
    assert (largest[:, 1:] == -torch.inf).all()
    assert (at < 1000).all()


def test_more_than_there_are_is_all():
    assert top_k(noise(2, 5, seed=3), 9)[1].shape == (2, 5)


def test_the_best_are_the_largest_of_what_may_follow():
    logits, forced = noise(6, 11, seed=4), torch.tensor([PAD, 5, PAD, PAD, 9, PAD])
    values, _ = top_k(allowed_log_probs(logits, forced), 4)
    exact = allowed_log_probs(logits, forced).sort(descending=True)
    torch.testing.assert_close(values, exact.values[:, :4], rtol=0, atol=0)


def test_labels_have_the_log_probabilities_that_cross_entropy_sums():
    logits, labels = noise(2, 3, 11, seed=5), torch.tensor([[4, 0, 10], [3, 3, 7]])
    expected = -torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    torch.testing.assert_close(label_log_probs(logits, labels), expected)
    assert log_probs(logits.bfloat16()).dtype == torch.float32

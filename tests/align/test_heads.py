"""Heads are named, and chosen by gold links, by the reverse model, or by what words need."""

import pytest
import torch

from regard.align.heads import choose_by_gold, choose_by_leave_one_out, choose_by_reverse
from regard.align.links import Gold, PairSide, SegmentedPair, agree, agree_with_gold, to_source, to_target, to_words
from regard.data.words import split_words
from regard.trace.head_choice import HeadChoice, all_choices, named_choices

SOFT = torch.tensor([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])  # (t, s)


def half(text, joints):
    return PairSide(split_words(text), joints, [])


def test_each_word_has_its_best_partner():
    assert to_source(SOFT).tolist() == [[False, True, False], [True, False, False]]
    assert to_target(SOFT).tolist() == [[False, True, True], [True, False, False]]
    assert not to_source(torch.zeros(2, 3)).any() and not to_target(-torch.ones(2, 3)).any()


def test_agreement_by_hand():
    one = [to_source(torch.stack([SOFT, SOFT.flip(1)]))]
    other = [to_target(SOFT[None])]
    # both of the first are among the three; of the turned ones one is
    torch.testing.assert_close(agree(one, other), torch.tensor([[2 * 2 / 5], [2 * 1 / 5]]))
    torch.testing.assert_close(agree(one * 3, one * 3).diagonal(), torch.ones(2))


def test_the_error_rate_counts_words_not_joints():
    read = SegmentedPair(
        half("我们好", [range(2), range(2, 3)]), half("We are fine", [range(1), range(1, 2), range(2, 3)]), []
    )
    links = torch.tensor([[[1, 0], [0, 0], [0, 1]], [[0, 1], [0, 0], [0, 0]]]) > 0
    assert to_words(read, links)[0].tolist() == [[True, True, False], [False, False, False], [False, False, True]]
    gold = Gold(frozenset({(0, 0), (1, 0), (2, 2)}), frozenset({(0, 0), (1, 0), (2, 2), (2, 1)}))
    torch.testing.assert_close(agree_with_gold([read], [links], [gold]), torch.tensor([0.0, 1.0]))


def test_all_heads_and_means_are_choices_each_in_both_ways():
    names = [str(choice) for choice in all_choices(2, 2)]
    assert names[:4] == ["cross:0:0:say", "cross:0:0:read", "cross:0:1:say", "cross:0:1:read"]
    assert names[4] == "cross:0:all:say" and names[-2:] == ["cross:all:all:say", "cross:all:all:read"]
    assert len({*names}) == (2 * 3 + 1) * 2
    for choice in all_choices(2, 2):
        assert named_choices(str(choice), (2, 2)) == [choice]


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("cross:1:0", [HeadChoice(1, 0, "say"), HeadChoice(1, 0, "read")]),
        ("cross:1", [HeadChoice(1, None, "say"), HeadChoice(1, None, "read")]),
        ("cross:1:all:read", [HeadChoice(1, None, "read")]),
        ("cross:all", [HeadChoice(None, None, "say"), HeadChoice(None, None, "read")]),
        ("cross:say", [HeadChoice(None, None, "say")]),
    ],
)
def test_names_are_read(name, choices):
    assert named_choices(name, (2, 2)) == choices


@pytest.mark.parametrize("name", ["cross:1:0:look", "decoder:0:0", "cross:-1:0", "cross:0:0:say:x", "1:0"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=f"heads must be named cross:LAYER:HEAD.* got '{name}'"):
        named_choices(name, (2, 2))


CHOICES = all_choices(1, 1)[:3]


def noisy(best, seed=3):
    """Gives three choices of which one shows the links."""
    chance = torch.Generator().manual_seed(seed)
    softs = []
    for links in (torch.eye(4), torch.eye(3).flip(0)):
        soft = torch.rand(3, *links.shape, generator=chance)
        soft[best] = 0.9 * links + 0.1 * soft[best]
        softs.append(soft)
    return softs


def test_gold_links_choose_for_each_model():
    halves = [half(" ".join("abcd"[:n]), [range(i, i + 1) for i in range(n)]) for n in (4, 3)]
    reads = [SegmentedPair(each, each, []) for each in halves]
    links = [frozenset((i, i) for i in range(4)), frozenset((i, 2 - i) for i in range(3))]
    one, other = choose_by_gold(reads, [noisy(1), noisy(2)], [CHOICES, CHOICES], [Gold(each, each) for each in links])
    assert (one.heads, other.heads) == (str(CHOICES[1]), str(CHOICES[2]))
    assert (one.rated[0].value, other.rated[0].value) == (0.0, 0.0)
    assert [each.value for each in one.rated] == sorted(each.value for each in one.rated)


def test_two_models_choose_each_other():
    one, other = choose_by_reverse([noisy(2), noisy(0, seed=4)], [CHOICES, CHOICES])
    assert (one.heads, other.heads) == (str(CHOICES[2]), str(CHOICES[0]))
    assert one.value(one.heads) == other.value(other.heads) == 1.0
    assert one.n_pairs == 2 and one.value("cross:9:9:say") is None


def test_need_chooses_for_one_model():
    needed = [torch.eye(4) - 0.5, torch.eye(3).flip(0)]
    (found,) = choose_by_leave_one_out(noisy(1), CHOICES, needed)
    assert found.heads == str(CHOICES[1])

"""Links in Pharaoh's form, and the error rate of found ones by hand.

Weights of whole batches are those of each sentence by itself, and are merged as one would by hand.
Links of two directions are joined: laws, a case by hand, and another way to write the same.
"""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.align.heads import leave_one_out
from regard.align.links import (
    NEIGHBOURS,
    SYMMETRISE,
    Gold,
    TokenizedPair,
    TokenizedSentence,
    as_pharaoh,
    check_gold,
    grow_diag,
    grow_diag_final_and,
    read_gold,
    score_alignment,
    soft_links,
)
from regard.batch import make_batch
from regard.padding import EOS
from regard.trace.head_ablation import attention_maps, find_heads, plain_copy
from regard.trace.head_choice import HeadChoice
from regard.trace.replay import replay
from tests.trace.makers import MODELS, make_model

LINKS = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


def test_sure_and_possible_links_are_told_apart():
    (first, second, third) = read_gold(["0-0 1?2 2p1 10-3", "", " 0-1\t1-0 "], "gold")
    assert first.sure == {(0, 0), (10, 3)}
    assert first.possible == {(0, 0), (10, 3), (1, 2), (2, 1)}
    assert second == Gold(frozenset(), frozenset())
    assert third.sure == third.possible == {(0, 1), (1, 0)}
    (both,) = read_gold(["0?0 0-0"], "gold")
    assert both.sure == both.possible == {(0, 0)}


@given(LINKS)
def test_what_is_written_is_read(links):
    (found,) = read_gold([as_pharaoh(links)], "gold")
    assert found.sure == found.possible == links


def test_links_are_written_in_the_order_of_the_source():
    assert as_pharaoh({(10, 1), (2, 3), (2, 0)}) == "2-0 2-3 10-1"


@pytest.mark.parametrize("link", ["1", "1-", "a-b", "1--2", "-1-2", "1-2-3", "1:2", "1.0-2"])
def test_what_is_no_link_is_named_with_its_line(link):
    with pytest.raises(ValueError, match=rf"gold\.txt, line 2: a link must be written i-j .* got '{link}'"):
        read_gold(["0-0", f"0-0 {link}"], "gold.txt")


def test_the_error_rate_by_hand():
    # A has 3 links, 1 of them sure, 1 more possible; S has 2: 1 − (1 + 2) / (3 + 2)
    gold = [Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1)}))]
    found = score_alignment([{(0, 0), (2, 1), (2, 2)}], gold)
    assert (found.aer, found.precision, found.recall) == pytest.approx((0.4, 2 / 3, 1 / 2))
    assert (found.n_links, found.n_sure, found.n) == (3, 2, 1)


def test_counts_are_added_over_pairs():
    sure = Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))
    found = score_alignment([{(0, 0)}, {(1, 1)}], [sure, sure])
    assert (found.aer, found.precision, found.recall, found.n) == (0.5, 0.5, 0.5, 2)


@given(st.lists(LINKS, max_size=4))
def test_gold_links_have_no_errors_and_others_have_all(links):
    gold = [Gold(each, each) for each in links]
    assert score_alignment(links, gold).aer == 0.0
    others = [{(i + 100, j) for i, j in each} for each in links]
    assert score_alignment(others, gold).aer == (1.0 if any(links) else 0.0)


def test_of_no_links_none_is_wrong():
    gold = [Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))]
    found = score_alignment([set()], gold)
    assert (found.aer, found.precision, found.recall) == (1.0, 1.0, 0.0)
    assert score_alignment([], []).aer == 0.0


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="one line of gold links for each pair, got 0 for 1"):
        score_alignment([set()], [])
    check_gold(Gold(frozenset(), frozenset({(1, 2)})), 2, 3, "pair 1")
    with pytest.raises(ValueError, match=r"pair 7: links must join words 0 … 1 to words 0 … 2, got 2-0: .* from 0"):
        check_gold(Gold(frozenset(), frozenset({(1, 2), (2, 0)})), 2, 3, "pair 7")


SRC = [[5, 6, 7, 8, 9], [7, 5], [10, 11, 12]]
TGT = [[8, 9], [5, 6, 7, 11], [12]]
READINGS = [
    TokenizedPair(TokenizedSentence(SRC[0], [0, 0, 1, 2, 2]), TokenizedSentence(TGT[0], [0, 1])),
    TokenizedPair(TokenizedSentence(SRC[1], [0, 0]), TokenizedSentence(TGT[1], [0, 1, 1, 1])),
    TokenizedPair(TokenizedSentence(SRC[2], [0, 1, 2]), TokenizedSentence(TGT[2], [0])),
]


@pytest.mark.parametrize(("family", "scheme"), MODELS)
def test_weights_of_a_batch_are_those_of_each_sentence(family, scheme):
    model = make_model(family, scheme)
    seen = {}

    def see(kind, layer, weights):
        seen[kind, layer] = weights

    attention_maps(plain_copy(model), make_batch(SRC, TGT), see)
    assert list(seen) == [(place.kind, place.layer) for place in find_heads(model)]
    for row, (src, tgt) in enumerate(zip(SRC, TGT, strict=True)):
        for look in replay(model, src, [*tgt, EOS]).attention:
            _, Q, K = look.sizes
            torch.testing.assert_close(seen[look.kind, look.layer][row, :, :Q, :K], look.weights())
            assert not seen[look.kind, look.layer][row, :, :Q, K:].any()


def by_hand(weights, reading, at):
    """Adds the columns of each source joint, and averages the rows of each target joint."""
    shift = {"say": 0, "read": 1}[at]
    columns = [[n for n, owner in enumerate(reading.src.groups) if owner == joint] for joint in {*reading.src.groups}]
    owners = reading.tgt.groups
    rows = [[n + shift for n, owner in enumerate(owners) if owner == joint] for joint in {*owners}]
    by_column = torch.stack([weights[:, some].sum(1) for some in columns], dim=1)
    return torch.stack([by_column[some].mean(0) for some in rows])


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_pieces_are_merged_as_by_hand(family):
    layers = {"n_decoder_layers": 2} if family == "transformer" else {"n_heads": 1}
    model = make_model(family, "none", dtype=torch.float32, **layers)
    looks = [replay(model, src, [*tgt, EOS]).attention for src, tgt in zip(SRC, TGT, strict=True)]
    cross = [torch.stack([look.weights() for look in some if look.kind == "cross"]) for some in looks]  # (L, H, Q, K)
    choices = [
        HeadChoice(0, 0, "say"),
        HeadChoice(0, 0, "read"),
        HeadChoice(0, None, "say"),
        HeadChoice(None, None, "read"),
    ]
    choices += [HeadChoice(1, 1, "read")] if family == "transformer" else []
    found = dict(soft_links(plain_copy(model), READINGS, choices))
    assert sorted(found) == [0, 1, 2]
    for place, soft in found.items():
        for choice, shares in zip(choices, soft, strict=True):
            layers = cross[place] if choice.layer is None else cross[place][[choice.layer]]
            weights = layers.mean((0, 1)) if choice.head is None else layers[0, choice.head]
            torch.testing.assert_close(shares, by_hand(weights, READINGS[place], choice.at))


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_needs_are_what_each_word_costs_more_without_another(family):
    model = make_model(family, "none")
    found = leave_one_out(plain_copy(model), READINGS)

    def costs(src, reading):
        logits = model(make_batch([src], [reading.tgt.ids]))[0].detach()
        each = [-float(row.log_softmax(0)[token]) for row, token in zip(logits, reading.tgt.ids, strict=False)]
        joints = {*reading.tgt.groups}
        return torch.tensor([sum(each[n] for n, own in enumerate(reading.tgt.groups) if own == j) for j in joints])

    for reading, rises in zip(READINGS, found, strict=True):
        for joint in {*reading.src.groups}:
            rest = [token for token, owner in zip(reading.src.ids, reading.src.groups, strict=True) if owner != joint]
            expected = costs(rest, reading) - costs(reading.src.ids, reading)
            torch.testing.assert_close(rises[:, joint], expected, atol=1e-5, rtol=1e-5)


def test_a_copy_is_its_own():
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    copied = plain_copy(model)
    for parameter in copied.parameters():
        parameter.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_model_of_unknown_parts_is_refused():
    from tests.search.models import Echo

    with pytest.raises(ValueError, match="a model must be one of Transformer, Recurrent to be looked into, got Echo"):
        find_heads(Echo(7))


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_nobody_looks_any_more_when_a_batch_is_read(family):
    own, seen = plain_copy(make_model(family, "none")), []
    for _ in range(2):
        attention_maps(own, make_batch(SRC, TGT), lambda kind, layer, weights: seen.append((kind, layer)))
    assert seen == [(place.kind, place.layer) for place in find_heads(own)] * 2
    attention_maps(own, make_batch(SRC, TGT), lambda kind, layer, weights: seen.append((kind, layer)), ("cross",))
    assert [kind for kind, _ in seen].count("cross") == 3


SYMMETRISE_LINKS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(SYMMETRISE_LINKS, SYMMETRISE_LINKS)
def test_from_the_intersection_to_the_union(forward, backward):
    found = {name: join(forward, backward) for name, join in SYMMETRISE.items()}
    assert found["intersection"] == forward & backward
    assert found["union"] == forward | backward
    assert found["intersection"] <= found["grow-diag"] <= found["grow-diag-final-and"] <= found["union"]


@given(SYMMETRISE_LINKS)
def test_where_both_agree_nothing_is_left_to_decide(links):
    for join in SYMMETRISE.values():
        assert join(links, links) == links


@given(SYMMETRISE_LINKS, SYMMETRISE_LINKS)
def test_what_is_given_is_not_changed(forward, backward):
    before = {*forward}, {*backward}
    for join in SYMMETRISE.values():
        join(forward, backward)
    assert (forward, backward) == before


@given(SYMMETRISE_LINKS, SYMMETRISE_LINKS)
def test_at_last_no_two_words_of_a_link_are_both_without_one(forward, backward):
    found = grow_diag_final_and(forward, backward)
    sources, targets = {i for i, _ in found}, {j for _, j in found}
    assert all(i in sources or j in targets for i, j in forward | backward)


def test_growing_by_hand():
    forward = {(0, 0), (1, 1), (2, 1), (4, 4)}
    backward = {(0, 0), (1, 1), (1, 2), (5, 3), (4, 5)}
    assert grow_diag(forward, backward) == {(0, 0), (1, 1), (2, 1), (1, 2)}
    # (4, 4) joins two free words, then (4, 5) has one that is taken, and (5, 3) none
    assert grow_diag_final_and(forward, backward) == {(0, 0), (1, 1), (2, 1), (1, 2), (4, 4), (5, 3)}


def reference(forward, backward, n=6):
    """Says it as the paper's code does: over a table of words, cell by cell."""

    def free(link):
        return [not any((link[0], k) in links for k in range(n)), not any((k, link[1]) in links for k in range(n))]

    links, before = forward & backward, None
    while before != links:
        before = {*links}
        for (i, j), (a, b) in product(sorted(before), NEIGHBOURS):
            near = (i + a, j + b)
            links |= {near} if near in forward | backward and any(free(near)) else set()
    for link in (*sorted(forward), *sorted(backward)):
        links |= {link} if all(free(link)) else set()
    return links


@given(SYMMETRISE_LINKS, SYMMETRISE_LINKS)
def test_growing_is_what_the_paper_s_code_does(forward, backward):
    assert grow_diag_final_and(forward, backward) == reference(forward, backward)


def test_names():
    assert list(SYMMETRISE) == ["intersection", "union", "grow-diag", "grow-diag-final-and"]
    with pytest.raises(KeyError):
        SYMMETRISE["grow"]

"""Constrained beam search against beam search, and against all that can be said with the constraints met."""

from itertools import product

import pytest

from regard.engine.plain import PlainDecoder
from regard.padding import BOS, UNK
from regard.search.constrained import constrained_search
from regard.search.constraint import Constraint, ConstraintAutomaton, Phrase
from regard.search.hypothesis import ranked
from tests.search.models import FAMILIES, SOURCES, WORDS, Constant, find, make_model, same, settings
from tests.search.test_beam import EVERYTHING, LIMIT, brute_force

A, B, C = WORDS


def constrained(model, sources, constraints, prefix=None, **changes):
    return constrained_search(PlainDecoder(model), sources, settings(**changes), constraints, prefix)


def one_of(*variants, **more):
    return Constraint(variants, **more)


def meets(tokens, constraints):
    """Tries all places for the first constraint, and the rest on either side of it."""
    if not constraints:
        return True
    for variant in constraints[0].variants:
        for start in range(len(tokens) - len(variant) + 1):
            stop = start + len(variant)
            if tuple(tokens[start:stop]) == variant and meets([*tokens[:start], None, *tokens[stop:]], constraints[1:]):
                return True
    return False


def n_needed(tokens, constraints):
    """Counts the tokens of the shortest continuation that meets all."""
    for n in range(9):
        if any(meets([*tokens, *more], constraints) for more in product(WORDS, repeat=n)):
            return n
    raise AssertionError("nothing meets these constraints")


def value(each, n_source, constraints, length_penalty):
    """Says by loops how targets with constraints are ranked."""
    needed = [n_needed(each.ids[:n], constraints) for n in range(len(each.ids) + 1)]
    n_price = sum(needed[n + 1] < needed[n] for n in range(len(each.ids)))
    length = min(len(each.token_log_probs), int(1.25 * (n_source + n_price)))
    return each.log_prob / length**length_penalty


SETS = [
    [one_of((A,))],
    [one_of((A, B), (C, C))],
    [one_of((A,)), one_of((A,))],
    [one_of((A, B)), one_of((B,))],
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length_penalty", [-0.7, 0.0, 1.0])
@pytest.mark.parametrize("beam", [1, 4])
def test_without_constraints_it_is_beam_search(family, length_penalty, beam):
    model = make_model(family, seed=beam, vocab_size=13)
    chosen = {"beam": beam, "n_best": beam, "length_penalty": length_penalty, "limit": 6}
    same(constrained(model, SOURCES, [[]] * 6, **chosen), find(model, SOURCES, **chosen))


@pytest.mark.parametrize("constraints", SETS, ids=range(len(SETS)))
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_a_full_beam_finds_what_brute_force_finds(constraints, length_penalty, seed):
    model, source = make_model("transformer", seed), SOURCES[seed]
    allowed = [each for each in brute_force(model, source, length_penalty) if meets(each.ids, constraints)]
    n_source = len(source) + 1
    allowed.sort(key=lambda each: (not each.finished, -value(each, n_source, constraints, length_penalty)))
    chosen = {"beam": EVERYTHING, "n_best": EVERYTHING, "length_penalty": length_penalty, "limit": LIMIT}
    same(constrained(model, [source], [constraints], **chosen), [allowed])


@pytest.mark.parametrize("seed", range(3))
def test_bonuses_rank_what_brute_force_finds(seed):
    model, source, bonus = make_model(seed=seed), SOURCES[seed], 2.0
    everything = brute_force(model, source, 1.0)
    wanted = [one_of((A, B), bonus=bonus), one_of((C,), bonus=bonus)]

    def with_bonus(each):
        most = max((some for some in ([], wanted[:1], wanted[1:], wanted) if meets(each.ids, some)), key=len)
        return (each.log_prob + bonus * len(most)) / len(each.token_log_probs)

    everything.sort(key=lambda each: (not each.finished, -with_bonus(each)))
    found = constrained(model, [source], [wanted], beam=EVERYTHING, n_best=EVERYTHING, limit=LIMIT)
    same(found, [everything])
    assert found[0] != ranked(found[0], EVERYTHING), "the bonuses change nothing"


def test_a_bonus_that_does_not_pay_changes_nothing():
    model = make_model(seed=3, vocab_size=13)
    small = [[one_of((A, B), bonus=1e-9)]] * 6
    same(constrained(model, SOURCES, small, beam=3, limit=6), find(model, SOURCES, beam=3, limit=6))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["beam", "greedy"])
@pytest.mark.parametrize("limit", [3, 12])
def test_every_hypothesis_contains_every_constraint(family, method, limit):
    model = make_model(family, seed=2, vocab_size=13)
    constraints = [[one_of((7, 8), (9,)), one_of((10,))], [], [one_of((4,))] * 3, [one_of((11, 12, 11))], [], []]
    n_best = 1 if method == "greedy" else 4
    found = constrained(model, SOURCES, constraints, method=method, beam=4, n_best=n_best, limit=limit)
    for own, hypotheses in zip(constraints, found, strict=True):
        assert hypotheses
        for each in hypotheses:
            assert meets(each.ids, own)
            assert len(each.token_log_probs) <= max(limit, sum(c.shortest for c in own) + 1)


def test_batch_size_and_order_do_not_matter():
    model = make_model(seed=1, vocab_size=17)
    constraints = [[one_of((n, n + 1), (n,))] * (n % 3) for n in range(6, 12)]
    chosen = {"beam": 3, "n_best": 2, "limit": 6}
    together = constrained(model, SOURCES, constraints, **chosen)
    same(together, [constrained(model, [s], [c], **chosen)[0] for s, c in zip(SOURCES, constraints, strict=True)])
    same(together, constrained(model, SOURCES[::-1], constraints[::-1], **chosen)[::-1])


def test_constraints_come_after_a_prefix_or_are_met_by_it():
    model, prefix = make_model(seed=4), [[A, B], [A, B]]
    found = constrained(model, [[4], [4]], [[one_of((B, C))], [one_of((A,))]], prefix, beam=3, limit=4)
    assert found[0][0].ids[:2] == [A, B] and meets(found[0][0].ids[1:], [one_of((B, C))])
    free = find(model, [[4]], [[A, B]], beam=3, limit=4)
    assert found[1][0].ids[:2] == free[0][0].ids[:2] == [A, B]


def test_a_long_constraint_raises_the_limit():
    long = tuple([A, B, C] * 5)
    found = constrained(make_model(), [[4]], [[one_of(long)]], beam=3, limit=4)[0][0]
    assert meets(found.ids, [one_of(long)])


# What a model would say, were it free: A and then the end, or that twice.
SAYS_A = [-20.0, -20.0, -20.0, -1.0, -0.5, -9.0, -12.0]


def test_a_search_does_not_ramble_to_dilute_what_its_constraint_costs():
    found = constrained(Constant(SAYS_A), [[4]], [[one_of((C,))]], beam=3, limit=40, length_penalty=1.0)[0][0]
    assert found.finished and meets(found.ids, [one_of((C,))])
    assert len(found.ids) <= 3


@pytest.mark.parametrize(
    ("constraints", "tokens", "complete"),
    [
        ([one_of((A, B)), one_of((B, C))], [A, B, C], False),  # the same B does not serve both
        ([one_of((A, B)), one_of((B, C))], [A, B, B, C], True),
        ([one_of((A, B)), one_of((A, B, C))], [A, B, C, A, B], True),  # whichever was begun first
        ([one_of((A, B)), one_of((A, B, C))], [A, B, A, B, C], True),
        ([one_of((A,)), one_of((A,))], [A], False),
        ([one_of((A,)), one_of((A,))], [A, B, A], True),
        ([one_of((A, A, B))], [A, A, A, B], True),  # begun too early, and once more on the way
        ([one_of((A, B), (C,))], [B, A, C], True),
        ([one_of((A, B), (C,))], [A], False),
        ([], [], True),
    ],
)
def test_what_meets_constraints(constraints, tokens, complete):
    automaton = ConstraintAutomaton(constraints)
    progress, last = automaton.beginning, BOS
    for token in tokens:
        progress, last = automaton.advance(progress, last, token), token
    assert progress.complete == complete == meets(tokens, constraints) == automaton.is_met(tokens)
    assert progress.needed == n_needed(tokens, constraints)


@pytest.mark.parametrize(
    ("tokens", "complete"),
    [([A], True), ([A, B], False), ([A, C], True), ([C, A], False), ([B, A], True), ([A, B, A], True), ([B, B], True)],
)
def test_a_variant_is_parted_from_what_would_go_on_within_its_word(tokens, complete):
    automaton = ConstraintAutomaton([one_of(Phrase((A,), frozenset({C}), frozenset({B})), (B, B))])
    progress, last = automaton.beginning, BOS
    for token in tokens:
        progress, last = automaton.advance(progress, last, token), token
    assert progress.complete == complete


def test_preferred_constraints_are_met_or_not():
    automaton = ConstraintAutomaton([one_of((A,)), one_of((B,), bonus=1.0)])
    assert automaton.is_met([B, A]) and not automaton.is_met([A]) and not automaton.is_met([])


def test_wrong_constraints_are_refused():
    with pytest.raises(ValueError, match="must have a variant, got none"):
        Constraint(())
    with pytest.raises(ValueError, match="got an empty one"):
        Constraint(((),))
    with pytest.raises(ValueError, match=f"got id {UNK}"):
        Constraint(((A, UNK),))
    with pytest.raises(ValueError, match="0 or more, got -1"):
        Constraint(((A,),), bonus=-1.0)
    with pytest.raises(ValueError, match="got the method 'sample'"):
        constrained(make_model(), [[4]], [[one_of((A,))]], method="sample")
    with pytest.raises(ValueError, match="got 2 for 1 sources"):
        constrained(make_model(), [[4]], [[], []])


def test_constraints_that_no_target_can_meet_say_so():
    model = make_model()
    with pytest.raises(ValueError, match="ids below 7, got 99"):
        constrained(model, [[4]], [[one_of((99,))]])
    decoder = PlainDecoder(model)
    decoder.limit = 5
    with pytest.raises(
        ValueError, match="got constraints of 8 tokens, prefix and end included, where the model writes 5"
    ):
        constrained_search(decoder, [[4]], settings(), [[one_of((A, B, C, A, B, C, A))]])
    # Nothing may follow A, and A may follow nothing but the beginning: B has no place.
    alone = one_of(Phrase((A,), frozenset(WORDS), frozenset(WORDS)))
    with pytest.raises(ValueError, match="must be met by some target, got"):
        constrained(model, [[4]], [[alone, one_of((B,))]], limit=3)


def test_no_sentences_are_no_hypotheses():
    assert constrained(make_model(), [], []) == []

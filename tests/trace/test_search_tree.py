"""The tree of a search is what the search thought of."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from regard.batch import make_batch
from regard.padding import EOS
from regard.pipeline.live import RecordingEngine
from regard.pipeline.translator import SegmentedText
from regard.search.hypothesis import ranked
from regard.trace.run import make_trace
from regard.trace.search_tree import FATES, SearchTree
from tests.search.models import WORDS
from tests.search.models import make_model as make_tiny
from tests.trace.makers import METHODS, make_model, make_translator, one_trace

SOURCE = [4, 5, 6]


def traced_tree(translator, source, **settings):
    """Gives what a search found for some ids, and its tree."""
    chosen = replace(translator.settings, **settings)
    engine = RecordingEngine(translator.engine)
    found = make_translator(engine).search([SegmentedText([source], ["", ""])], chosen, [], lambda n: None)[0]
    (record,) = engine.decoder.records
    return found, make_trace(translator, chosen, source, found, record.steps[0]).tree


def plain_beam(model, source, beam, n_steps):
    """Searches without a cache, a sentence at a time, in plain Python; tells what became of every continuation."""
    live, fates = [((), 0.0)], {}
    for step in range(n_steps):
        offered = []
        for said, total in live:
            with torch.no_grad():
                logits = model(make_batch([source], [list(said)]))[0, -1].log_softmax(-1)
            may = sorted(((gain, token) for token, gain in enumerate(logits.tolist()) if token >= EOS), reverse=True)
            offered += [((*said, token), total + gain) for gain, token in may[: beam + 1]]
        offered.sort(key=lambda one: -one[1])
        ended = [said for said, _ in offered[:beam] if said[-1] == EOS]
        live = [(said, total) for said, total in offered if said[-1] != EOS][:beam]
        going = {said for said, _ in live}
        for said, total in offered:
            on = "kept" if step < n_steps - 1 else "open"
            fates[said] = ("ended" if said in ended else on if said in going else "dropped", total)
    return fates


@pytest.mark.parametrize("beam", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_is_what_a_plain_search_does(beam, seed):
    model = make_tiny(seed=seed)
    translator = make_translator(model, method="beam", beam=beam, max_extra=4)
    _, tree = traced_tree(translator, SOURCE)
    n_steps = max(node.step for node in tree.nodes) + 1
    expected = plain_beam(model, SOURCE, beam, n_steps)
    found = {tuple(each.token for each in tree.path(node.number)): node for node in tree.nodes}
    assert {said: node.fate for said, node in found.items()} == {said: fate for said, (fate, _) in expected.items()}
    for said, node in found.items():
        assert node.total == pytest.approx(expected[said][1], abs=1e-9)
    assert {token for node in tree.nodes for token in (node.token,)} <= {EOS, *WORDS}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_the_search_s_own_hypotheses_are_the_best_of_the_tree(family, method):
    translator = make_translator(make_model(family), **METHODS[method])
    for source in ([5, 6, 7], [9, 4], [8, 8, 5, 4, 6]):
        found, tree = traced_tree(translator, source)
        ends = [tree.hypothesis(node.number) for node in tree.leaves("ended", "open")]
        distinct = {tuple(each.ids): each for each in found}  # samples may be equal
        assert ranked(ends, len(distinct)) == ranked(list(distinct.values()), len(distinct))
        assert tree.hypothesis(tree.best) == found[0]


def test_greedy_is_one_path_and_samples_are_several():
    trace = one_trace(make_model())
    assert [node.fate for node in trace.tree.nodes][:-1] == ["kept"] * (len(trace.tree) - 1)
    assert len(trace.tree.leaves()) == 1
    sampled = one_trace(make_model(), method="sample", n_best=5, temperature=3.0)
    assert 1 < len(sampled.tree.leaves()) <= 5


def test_every_leaf_can_be_looked_at_in_its_own_order():
    trace = one_trace(make_model(), **METHODS["beam"])
    assert trace.at(trace.end_node) is trace
    seen = set()
    for node in trace.tree.leaves("ended", "open", "kept"):
        other = trace.at(node.number)
        nodes = trace.tree.path(node.number)
        assert other.target == tuple(each.piece for each in nodes)
        assert [step.log_prob for step in other.steps] == [each.log_prob for each in nodes]
        assert other.check().log_prob < 1e-10
        assert other.decoder[0].sizes[1] == len(nodes)
        seen.add(other.target)
    assert len(seen) >= 3
    assert trace.at(trace.tree.best).output == trace.output


def test_forced_tokens_stand_alone():
    translator = make_translator(make_model(), **METHODS["beam"])
    trace = regard.trace(translator, "abc", prefix="hi")
    assert [node.piece for node in trace.tree.nodes if node.step < 2] == ["h", "i"]


def small_tree():
    """A trunk of two tokens, of which the second has three continuations."""
    fates = [FATES.index(fate) for fate in ("kept", "kept", "dropped", "ended")]
    parents, tokens, gains = np.array([-1, 0, 1, 1]), np.array([4, 5, 6, EOS]), np.array([-0.5, -1.0, -3.0, -0.25])
    pieces = {4: "a", 5: "b", 6: "c", EOS: "</s>"}
    return SearchTree(parents, tokens, gains, np.array(fates, dtype=np.int8), pieces, 3, 1.0)


def test_nodes_know_their_steps_and_totals():
    tree = small_tree()
    assert [(node.step, node.total, node.piece) for node in tree.nodes] == [
        (0, -0.5, "a"), (1, -1.5, "b"), (2, -4.5, "c"), (2, -1.75, "</s>"),
    ]  # fmt: skip
    assert [node.number for node in tree.leaves()] == [3, 2]
    assert [node.number for node in tree.leaves("dropped")] == [2]
    hypothesis = tree.hypothesis(3)
    assert (hypothesis.ids, hypothesis.finished, hypothesis.score) == ([4, 5], True, -1.75 / 3)
    assert tree.find([4, 5, 6]) == 2


def test_a_hypothesis_whose_continuations_all_gave_way_is_a_leaf():
    tree = small_tree()
    fates = np.array([FATES.index(fate) for fate in ("kept", "kept", "dropped", "dropped")], dtype=np.int8)
    gave_way = SearchTree(tree.parents, tree.tokens, tree.log_probs, fates, tree.token_texts, 1, 1.0)
    assert [node.number for node in gave_way.leaves("kept")] == [1]


def test_what_is_not_in_the_tree_is_refused():
    tree = small_tree()
    with pytest.raises(ValueError, match=r"a node must lie in 0 … 3, got 4"):
        tree.path(4)
    with pytest.raises(ValueError, match=r"the search was offered, got \[4, 6\]"):
        tree.find([4, 6])

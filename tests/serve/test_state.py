"""Traces are kept for a while, and not without a limit."""

import pytest

import regard
from regard.serve.requests import UnknownError
from regard.serve.state import Kept, Run
from tests.trace.makers import make_model, make_translator


@pytest.fixture(scope="module")
def run():
    return Run("tiny", regard.trace_texts(make_translator(make_model(), method="beam", beam=3), ["bad"])[0].traces)


def test_the_oldest_is_forgotten_first(run):
    kept = Kept(2, 2**30)
    first, second = kept.add(run), kept.add(run)
    kept.get(first)  # which makes it the newest
    third = kept.add(run)
    assert len({first, second, third}) == 3 and min(map(len, (first, second, third))) > 20
    assert kept.get(first) is kept.get(third) is run and len(kept) == 2
    with pytest.raises(UnknownError, match="POST /trace"):
        kept.get(second)


def test_large_ones_push_others_out_and_stay_themselves(run):
    kept = Kept(10, int(2.5 * run.n_bytes()))
    names = [kept.add(run) for _ in range(5)]
    assert len(kept) == 2 and kept.get(names[-1]) is run
    kept = Kept(10, 0)
    assert kept.get(kept.add(run)) is run


def test_another_path_is_read_once(run):
    best = run.traces[0]
    other = next(leaf.number for leaf in best.tree.leaves() if leaf.number != best.leaf)
    assert run.trace() is best and run.trace(0, best.leaf) is best
    assert run.trace(0, other) is run.trace(0, other)
    for leaf in best.tree.leaves()[:8]:
        run.trace(0, leaf.number)
    assert len(run.others) <= 4
    with pytest.raises(ValueError, match="got 3"):
        run.trace(3)

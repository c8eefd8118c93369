"""Traces are cached up to a number and a size."""

import pytest

import regard
from regard.pipeline.live import LiveText
from regard.pipeline.translator import Translator
from regard.serve import NotFoundError
from regard.serve.state import TraceCache, TraceRun
from regard.trace.run import trace_part
from tests.trace.makers import make_model, make_translator


@pytest.fixture(scope="module")
def run():
    (trace,) = regard.trace_texts(make_translator(make_model(), method="beam", beam=3), ["bad"])[0].traces
    made = TraceRun("tiny", 1, lambda part: trace)
    assert made.trace() is trace
    return made


def test_the_least_recently_used_is_evicted_first(run):
    cache = TraceCache(2, 2**30)
    first, second = cache.add(run), cache.add(run)
    cache.get(first)  # now the most recently used
    third = cache.add(run)
    assert len({first, second, third}) == 3 and min(map(len, (first, second, third))) > 20
    assert cache.get(first) is cache.get(third) is run and len(cache) == 2
    with pytest.raises(NotFoundError, match="POST /trace"):
        cache.get(second)


def test_large_runs_evict_others_but_not_themselves(run):
    cache = TraceCache(10, int(2.5 * run.n_bytes))
    names = [cache.add(run) for _ in range(5)]
    assert len(cache) == 2 and cache.get(names[-1]) is run
    cache = TraceCache(10, 0)
    assert cache.get(cache.add(run)) is run


def test_another_path_is_replayed_once(run):
    best = run.trace()
    other = next(leaf.number for leaf in best.tree.leaves() if leaf.number != best.end_node)
    assert run.trace() is best and run.trace(0, best.end_node) is best
    assert run.trace(0, other) is run.trace(0, other)
    for leaf in best.tree.leaves()[:8]:
        run.trace(0, leaf.number)
    assert len(run.traces) <= 5
    with pytest.raises(ValueError, match="got 3"):
        run.trace(3)


def test_parts_are_traced_when_they_are_requested_and_the_latest_are_kept():
    translator, made = make_translator(make_model(), method="beam", beam=3), []
    live = LiveText(translator, "bad cab. " * 8, translator.settings, [])
    run = TraceRun("tiny", 8, lambda part: made.append(part) or trace_part(live, part))
    expected = regard.trace_texts(translator, ["bad cab. " * 8])[0].traces
    for part in range(8):
        assert run.trace(part).output == expected[part].output
    assert run.trace(7) is run.trace(7) and made == list(range(8)) and len(run.traces) == 5
    run.trace(0)
    assert made[-1] == 0


def test_what_was_followed_is_not_searched_again(monkeypatch):
    translator = make_translator(make_model(), method="beam", beam=3)
    live = LiveText(translator, "bad cab.", translator.settings, [])
    found = live.follow(lambda now: None)
    monkeypatch.setattr(Translator, "search", None)
    assert trace_part(live, 0).output == found.text

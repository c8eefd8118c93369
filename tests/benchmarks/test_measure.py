"""Interleaved timing: who takes part in which round, and what is reported."""

import time

from benchmarks.measure import interleave


def test_versions_take_turns_after_one_call_each_to_warm_up():
    order = []
    interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, "cpu", 0.0, least=3)
    assert order == ["a", "b"] * 4


def test_a_slow_version_sits_out_what_follows_the_rounds_of_all():
    calls = {"fast": 0, "slow": 0}

    def call(name, seconds):
        calls[name] += 1
        time.sleep(seconds)

    versions = {"fast": lambda: call("fast", 0.001), "slow": lambda: call("slow", 0.03)}
    found = interleave(versions, "cpu", 0.3, least=2, most=0.05)
    assert calls["slow"] == 1 + 2
    assert calls["fast"] > 1 + 2
    assert found["fast"].median < found["slow"].median


def test_a_timing_is_the_median_between_its_quartiles(monkeypatch):
    seconds = iter([9, 1, 2, 3, 4, 5, 6, 7])
    monkeypatch.setattr("benchmarks.measure._clock", lambda call, device: next(seconds))
    found = interleave({"a": lambda: None}, "cpu", 0.0, least=8)["a"]
    assert (found.low, found.median, found.high) == (2.25, 4.5, 6.75)

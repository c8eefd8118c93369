"""The suite that measures how cost grows: its paths compute the same, and stop where they should."""

import sys
from dataclasses import replace

import pytest
import torch

from benchmarks.suites import SCRIPTS


@pytest.fixture
def growth(monkeypatch):
    """Import the script the way it runs, with its folder on the path for its siblings, and forget it afterwards."""
    monkeypatch.syspath_prepend(SCRIPTS)
    before = set(sys.modules)
    import growth

    yield growth
    for name in {"growth", "measure"} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.mark.parametrize("name", ["scaled dot", "additive"])
def test_both_ways_to_one_attention_have_the_same_gradients(growth, name):
    ways = [growth.Task(path, 2, 11, "cpu") for path in (name, f"{name}, definition")]
    fast, plain = (growth.make_step(way, torch.device("cpu"))() for way in ways)
    for got, wanted in zip(fast, plain, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_all_paths_differ_and_give_gradients_to_all_that_learns(growth):
    found = {path: growth.make_step(growth.Task(path, 1, 7, "cpu"), torch.device("cpu"))() for path in growth.PATHS}
    assert {path: len(grads) for path, grads in found.items()} == {
        **dict.fromkeys(growth.PATHS, 3),
        "T5 table": 4,
        "Shaw": 4,
        "additive": 6,
        "additive, definition": 6,
    }
    queries = [grads[0] for path, grads in found.items() if not path.endswith("definition")]
    assert all(not torch.equal(a, b) for at, a in enumerate(queries) for b in queries[:at])


def curve(growth, ms, mib=(), axis="length"):
    sizes = [64 * 2**at for at in range(len(ms))]
    return growth.Curve("x", axis, sizes, list(ms), extra_mib=list(mib))


def test_a_path_stops_where_the_next_size_would_take_too_long_or_too_much(growth):
    sizes = replace(growth.SIZES["cpu"], most_s=1.0, most_mib=100)
    slow, large, small = curve(growth, [100, 400]), curve(growth, [1, 1], [10, 30]), curve(growth, [1, 4], [1, None])
    assert [growth.goes_on(each, 256, sizes) for each in (slow, large, small)] == [False, False, True]
    assert slow.stopped == "256: about 1.6 s expected, 1 s are the limit"
    assert large.stopped == "256: about 120 MiB expected, 100 MiB are the limit"
    assert not growth.goes_on(slow, 512, sizes)
    assert growth.goes_on(curve(growth, [100, 400], axis="batch"), 256, sizes)  # twice as much, not four times
    assert growth.goes_on(growth.Curve("x", "length"), 64, sizes)


def test_a_path_that_fails_says_why_and_the_others_go_on(growth, monkeypatch):
    monkeypatch.setitem(growth.PATHS, "Shaw", ("scaled_dot", "none", growth.Mask(), False))
    made = growth.make_step

    def make(task, device):
        if task.path == "Shaw":
            raise RuntimeError("out of memory: tried to have 9 GiB\nand more words")
        return made(task, device)

    monkeypatch.setattr(growth, "make_step", make)
    curves = {path: growth.Curve(path, "length") for path in ("Shaw", "ALiBi")}
    tasks = [growth.Task(path, 1, 8, "cpu") for path in curves]
    steps, firsts = growth.first_calls(tasks, curves, torch.device("cpu"))
    assert set(steps) == set(firsts) == {"ALiBi"}
    assert curves["Shaw"].stopped == "8: out of memory: tried to have 9 GiB"


def test_exponents_are_fitted_to_what_was_measured(growth):
    found = growth.fitted(curve(growth, [3.0 * 4**at for at in range(5)], [0.1, 0.2, 2, 4, 8])).exponents
    assert found == {"time": pytest.approx(2.0), "memory": pytest.approx(1.0)}


def test_the_limit_is_that_of_the_products(growth):
    sizes = replace(growth.SIZES["cpu"], heads=3, width=5, batch=2)
    assert growth.limits("length", [7], sizes, 1e3)["ms"] == [12 * 2 * 3 * 7 * 7 * 5]
    assert growth.limits("batch", [7], replace(sizes, length=11), 1e3)["ms"] == [12 * 7 * 3 * 11 * 11 * 5]

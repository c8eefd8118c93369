"""Search in compiled code: the same hypotheses as the searches that Python leads, with the same numbers."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from regard.batch import EOS, make_source
from regard.decode import SEARCH, compiled
from regard.model.native import NativeTransformer
from regard.model.swift import swift
from regard.native import UnavailableError, open_library
from tests.decode.models import SOURCES, make_model, same, settings
from tests.decode.test_conveyor import SETTINGS

try:
    open_library()
except UnavailableError as error:
    pytest.skip(f"there is no compiled code to be tested: {error}", allow_module_level=True)


def native(seed=0, precision="float32", **parts) -> NativeTransformer:
    model = swift(make_model(seed=seed, **parts).float().requires_grad_(False), precision)
    assert isinstance(model, NativeTransformer)
    return model


@pytest.mark.parametrize("changes", [*SETTINGS, {"beam": 6, "n_best": 6}, {"beam": 9, "limit": 12}], ids=str)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_finds_what_python_finds(changes, precision):
    chosen = settings(**changes)
    for seed in range(4):
        model = native(seed, precision)
        for sources in (SOURCES, SOURCES[:1], SOURCES[3:5]):
            src = make_source(sources)
            same(compiled.search(model, src, chosen), SEARCH[chosen.method](model, src, chosen, None))


def test_a_larger_vocabulary_with_sentences_of_many_lengths():
    model, chosen = native(1, vocab_size=300, sharp=1.0), settings(beam=4, n_best=2, limit=40)
    drawn = torch.Generator().manual_seed(0)
    sources = [torch.randint(4, 300, (n,), generator=drawn).tolist() for n in (1, 30, 7, 2, 19, 3, 3, 11)]
    src = make_source(sources)
    found = compiled.search(model, src, chosen)
    same(found, SEARCH["beam"](model, src, chosen, None))
    assert len({len(some[0].ids) for some in found}) > 1  # they leave the batch one after another


def test_threads_of_python_search_side_by_side():
    model, chosen = native(2, vocab_size=300), settings(beam=5, limit=20)
    batches = [make_source([source]) for source in SOURCES * 5]
    alone = [compiled.search(model, src, chosen)[0] for src in batches]
    with ThreadPoolExecutor(4) as pool:
        beside = list(pool.map(lambda src: compiled.search(model, src, chosen)[0], batches))
    same(beside, alone)


def test_no_end_before_its_time():
    model = native()
    model.least = EOS + 1
    found = compiled.search(model, make_source(SOURCES), settings(beam=2, limit=4))
    assert all(len(some[0].ids) == 4 and not some[0].finished for some in found)


def test_nothing_to_search():
    assert compiled.search(native(), make_source([]), settings()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"beam": 2, "n_best": 3}, "n_best must lie between 1 and beam, got 3 and 2"),
        ({"method": "greedy", "n_best": 2}, "greedy search finds one hypothesis, got n_best 2"),
    ],
)
def test_wrong_settings_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        compiled.search(native(), make_source(SOURCES), settings(**changes))


def test_a_search_can_be_given_up_between_its_steps(monkeypatch):
    model, chosen = native(), settings(beam=2, limit=40)
    model.least = EOS + 1
    forgotten, go_on, forget = [], model.library.go_on, model.library.forget_search

    def stop(searching, n_steps, threads):
        assert not go_on(searching, n_steps, threads), "40 tokens are more than some steps"
        raise KeyboardInterrupt

    monkeypatch.setattr(model.library, "go_on", stop)
    monkeypatch.setattr(model.library, "forget_search", lambda address: (forgotten.append(address), forget(address)))
    with pytest.raises(KeyboardInterrupt):
        compiled.search(model, make_source(SOURCES), chosen)
    assert len(forgotten) == 1
    monkeypatch.undo()
    assert len(compiled.search(model, make_source(SOURCES), chosen)) == len(SOURCES)

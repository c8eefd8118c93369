"""Search in compiled code: the same hypotheses as the searches that Python leads, with the same numbers.

The compiled Transformer: equal to the plain one at every step, whatever its parts, its batch and its threads.
"""

import copy
import gc
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.batch import make_batch, make_source
from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings, PartSettings
from regard.engine import select_engine
from regard.engine.native import NativeEngine
from regard.engine.native_weights import make_codes
from regard.engine.plain import PlainDecoder, PlainEngine
from regard.model.seq2seq import allowed_log_probs, top_k
from regard.native import UnavailableError, open_library
from regard.padding import BOS, EOS, PAD
from regard.position.contract import PositionTable
from regard.search import SEARCH
from tests.engine.test_slots import SETTINGS
from tests.search.models import SOURCES, make_model, same, settings

try:
    open_library()
except UnavailableError as error:
    pytest.skip(f"there is no compiled code to be tested: {error}", allow_module_level=True)


def native_engine(seed=0, precision="float32", **parts) -> NativeEngine:
    engine = select_engine(make_model(seed=seed, **parts).float().requires_grad_(False), precision)
    assert isinstance(engine, NativeEngine)
    return engine


@pytest.mark.parametrize("changes", [*SETTINGS, {"beam": 6, "n_best": 6}, {"beam": 9, "limit": 12}], ids=str)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_finds_what_python_finds(changes, precision):
    chosen = settings(**changes)
    for seed in range(4):
        engine = native_engine(seed, precision)
        for sources in (SOURCES, SOURCES[:1], SOURCES[3:5]):
            expected = SEARCH[chosen.method](engine.decoder, sources, chosen, None)
            same(engine.search_batch(sources, chosen), expected)


def test_a_larger_vocabulary_with_sentences_of_many_lengths():
    engine, chosen = native_engine(1, vocab_size=300, sharp=1.0), settings(beam=4, n_best=2, limit=40)
    drawn = torch.Generator().manual_seed(0)
    sources = [torch.randint(4, 300, (n,), generator=drawn).tolist() for n in (1, 30, 7, 2, 19, 3, 3, 11)]
    found = engine.search_batch(sources, chosen)
    same(found, SEARCH["beam"](engine.decoder, sources, chosen, None))
    assert len({len(some[0].ids) for some in found}) > 1  # they leave the batch one after another


def test_threads_of_python_search_side_by_side():
    engine, chosen = native_engine(2, vocab_size=300), settings(beam=5, limit=20)
    batches = [[source] for source in SOURCES * 5]
    alone = [engine.search_batch(sources, chosen)[0] for sources in batches]
    with ThreadPoolExecutor(4) as pool:
        beside = list(pool.map(lambda sources: engine.search_batch(sources, chosen)[0], batches))
    same(beside, alone)


def test_no_end_before_its_time():
    engine = native_engine()
    engine.decoder.min_token = EOS + 1
    found = engine.search_batch(SOURCES, settings(beam=2, limit=4))
    assert all(len(some[0].ids) == 4 and not some[0].finished for some in found)


def test_nothing_to_search():
    assert native_engine().search_batch([], settings()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"beam": 2, "n_best": 3}, "n_best must lie between 1 and beam, got 3 and 2"),
        ({"method": "greedy", "n_best": 2}, "greedy search finds one hypothesis, got n_best 2"),
    ],
)
def test_wrong_settings_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        native_engine().search_batch(SOURCES, settings(**changes))


def test_a_search_can_be_given_up_between_its_steps(monkeypatch):
    engine, chosen = native_engine(), settings(beam=2, limit=40)
    engine.decoder.min_token = EOS + 1
    library, freed = engine.decoder.library, []
    advance, free = library.advance, library.free_beam_search

    def stop(searching, n_steps, threads):
        assert not advance(searching, n_steps, threads), "40 tokens are more than some steps"
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "advance", stop)
    monkeypatch.setattr(library, "free_beam_search", lambda address: (freed.append(address), free(address)))
    with pytest.raises(KeyboardInterrupt):
        engine.search_batch(SOURCES, chosen)
    assert len(freed) == 1
    monkeypatch.undo()
    assert len(engine.search_batch(SOURCES, chosen)) == len(SOURCES)


V = 83
SRC = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [4], [33, 71]]
# Widths of heads that are whole vectors on some machine, one to eight of them, and widths that are none.
WIDTHS = [(12, 3), (15, 3), (14, 1), (32, 4), (48, 3), (64, 2), (128, 2), (256, 2), (66, 2)]


def made(d_model=12, n_heads=3, d_ff=17, **settings):
    torch.manual_seed(1)
    sizes = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": d_model, "n_heads": n_heads, "d_ff": d_ff}
    model = build_model(ModelSettings(**sizes, **settings), (V + 7 * (settings.get("tie") == "none"), V)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases start at 0 and norms at 1, which would hide where they go
            parameter.add_(0.3 * torch.randn_like(parameter)) if parameter.dim() == 1 else parameter
    return model


class Logits:
    """A native decoder, asked as PyTorch models are."""

    def __init__(self, engine):
        assert isinstance(engine, NativeEngine)
        self.engine, self.decoder = engine, engine.decoder

    def start(self, src, n_hypotheses):
        sources = [ids[: n - 1] for ids, n in zip(src.ids.tolist(), src.lengths.tolist(), strict=True)]
        return self.decoder.start(sources, n_hypotheses)

    def step(self, tokens, state):
        logits, state = self.decoder.step(tokens.numpy(), state)
        return torch.from_numpy(logits), state

    def top_k(self, tokens, state, forced, k):
        best, state = self.decoder.top_k(tokens.numpy(), state, None if forced is None else forced.numpy(), k)
        return torch.from_numpy(best.log_probs), torch.from_numpy(best.tokens), state


def native(model, precision="float32"):
    return Logits(select_engine(model, precision))


@torch.no_grad()
def run(model, n_steps=9, n_hypotheses=2, sources=SRC):
    """Return the logits of each step, every hypothesis with other tokens."""
    state, out = model.start(make_source(sources), n_hypotheses), []
    rows = torch.arange(len(sources) * n_hypotheses)
    for t in range(n_steps):
        tokens = torch.full_like(rows, BOS) if t == 0 else 4 + (rows * 5 + t * 11) % (V - 4)
        logits, state = model.step(tokens, state)
        out.append(logits)
    return torch.stack(out)


def exact(model):
    return copy.deepcopy(model).double()


def assert_near(found, expected):
    assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_every_step_equals_the_transformer(norm, place, activation):
    model = made(norm=norm, norm_place=place, activation=activation)
    assert_near(run(native(model)), run(exact(model)))


@pytest.mark.parametrize(("d_model", "n_heads"), WIDTHS)
@pytest.mark.parametrize(("tie", "position"), [("all", "sinusoidal"), ("none", "sinusoidal"), ("all", "rotary")])
def test_every_width_of_heads_equals_the_transformer(d_model, n_heads, tie, position):
    model = made(d_model, n_heads, d_ff=2 * d_model + 3, tie=tie, position=PartSettings(position))
    assert_near(run(native(model), n_steps=19), run(exact(model), n_steps=19))


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "none", "index", "half_wave", "rotary"])
def test_every_position_that_is_added_or_turns_equals_the_transformer(position):
    model = made(position=PartSettings(position))
    assert_near(run(native(model)), run(exact(model)))


def test_parts_without_a_bias_have_none():
    model = made()
    layer = model.decoder.layers[0]
    for part in (layer.attention.w_k, layer.cross_attention.w_q, layer.feed_forward.outer, layer.after_attention.norm):
        part.bias = None
    assert_near(run(native(model)), run(exact(model)))


def test_norms_keep_their_own_eps():
    model = made()
    model.decoder.layers[1].after_attention.norm.eps = 0.5
    model.encoder.layers[0].after_feed_forward.norm.eps = 0.3
    assert_near(run(native(model)), run(exact(model)))


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary"])
def test_long_sentences_equal_the_transformer(position):
    options = {"max_len": 700} if position == "learned" else {}
    model = made(position=PartSettings(position, options))
    source, target = [4 + i % 71 for i in range(600)], [4 + i * i % 73 for i in range(599)]
    with torch.no_grad():
        expected = exact(model)(make_batch([source], [target]))[0]
        packed, logits = native(model), []
        state = packed.start(make_source([source]), 1)
        for token in (BOS, *target):
            said, state = packed.step(torch.tensor([token]), state)
            logits.append(said[0])
    assert_near(torch.stack(logits), expected)


def test_places_past_the_end_of_a_table_are_refused():
    packed = native(made(position=PartSettings("learned", {"max_len": 9})))
    run(packed)
    with pytest.raises(ValueError, match="positions must be below 9"):
        run(packed, n_steps=10)
    with pytest.raises(ValueError, match="positions must be below 9"):
        packed.start(make_source([[5] * 9]), 1)


class Rounding(nn.Linear):
    """A linear map as 8 bits do it: weights rounded for each output, inputs for each row."""

    def __init__(self, weight, bias):
        super().__init__(weight.shape[1], weight.shape[0], bias is not None)
        scale = weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        self.weight, self.bias = nn.Parameter((weight.detach() / scale).round() * scale), bias

    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        return nn.functional.linear((x / scale + 0.5).floor() * scale, self.weight, self.bias)


def rounding(model):
    """Puts rounding maps into a model, the one to its words among them."""
    model = exact(model)
    maps = [(parent, name, m) for parent in model.modules() for name, m in parent.named_children()]
    for parent, name, m in maps:
        if isinstance(m, nn.Linear):
            setattr(parent, name, Rounding(m.weight, m.bias))
    model.output.forward = Rounding(model.output.table.weight, None).forward
    return model


@pytest.mark.parametrize(("d_model", "n_heads"), [(12, 3), (15, 3), (64, 2), (66, 2)])
@pytest.mark.parametrize("place", ["before", "after"])
def test_int8_is_rounding_and_nothing_else(place, d_model, n_heads):
    model = made(d_model, n_heads, d_ff=2 * d_model + 3, norm_place=place)
    found, expected, free = run(native(model, "int8")), run(rounding(model)), run(exact(model))
    off = (found.double() - expected).abs()
    # Where a number lies between two roundings the last bit of a float decides: a few of them may fall the other way.
    assert float(off.median()) < 1e-5 * float(expected.std())
    assert float(off.mean()) < 0.1 * float((free - expected).abs().mean())


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("n_hypotheses", [1, 3])
def test_a_sentence_does_not_notice_its_batch(precision, n_hypotheses):
    packed = native(made(48, 3, 130), precision)
    many = [[4 + (i * j) % 71 for j in range(1 + i % 5)] for i in range(13)]
    rows = torch.arange(len(many) * n_hypotheses).view(len(many), n_hypotheses)

    def say(sentences):
        state, out = packed.start(make_source([many[i] for i in sentences]), n_hypotheses), []
        for t in range(5):
            logits, state = packed.step(4 + (rows[sentences].flatten() * 7 + t) % 71, state)
            out.append(logits.view(len(sentences), n_hypotheses, -1))
        return torch.stack(out, dim=1)

    together = say(list(range(len(many))))
    for sentences in ([0], [7], [12], [3, 1], [9, 2, 5], list(range(12, -1, -1))):
        assert_close(say(sentences), together[sentences], rtol=0, atol=0)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_two_threads_compute_what_one_does(precision):
    torch.manual_seed(0)  # large enough that every loop is shared
    sizes = ModelSettings(n_encoder_layers=1, n_decoder_layers=1, d_model=128, n_heads=4, d_ff=512)
    packed = native(build_model(sizes, (2003, 2003)).eval(), precision)
    sources = [[4 + (i * j) % 71 for j in range(20 + i)] for i in range(17)]
    tokens, found = torch.arange(17 * 6) * 11, {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            logits = run(packed, 25, 6, sources)
            best = packed.top_k(tokens, packed.start(make_source(sources), 6), None, 3)[:2]
        finally:
            torch.set_num_threads(1)
        found[threads] = (logits, *best)
    assert_close(found[2], found[1], rtol=0, atol=0)


LATE = """
import regard
from regard.config import DecodeSettings
engine = regard.load("zh-en", precision="int8").engine
sources = [[300 + (7 * n + i) % 900 for i in range(5 + n % 30)] for n in range(64)]
for _ in range(5):
    engine.search_batch(sources, DecodeSettings(method="greedy", beam=1, max_ratio=0.0, max_extra=10))
"""


def test_threads_that_the_system_takes_off_a_core_finish_their_share():
    environment = {**os.environ, "OMP_NUM_THREADS": str(4 * (os.cpu_count() or 2))}  # so that some of them wait
    done = subprocess.run([sys.executable, "-c", LATE], env=environment, check=False)
    assert done.returncode == 0, "a crash ends the process"


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_hypotheses_can_be_reordered_and_sentences_dropped(precision):
    model = made()
    packed = native(model, precision)
    reference = exact(model) if precision == "float32" else rounding(model)
    results = []
    for one, kind in ((packed, np.array), (reference, torch.tensor)):
        state = one.start(make_source(SRC), 2)
        for t, rows in enumerate([[1, 0, 3, 3, 4, 5, 7, 6], [0, 0, 2, 3, 5, 5, 6, 7], [1, 0, 2, 2, 5, 4, 6, 6]]):
            _, state = one.step(torch.arange(8) * 3 + t + 4, state)
            state = state.reorder(kind(rows))
        _, state = one.step(torch.tensor([10, 11, 12, 13, 14, 15]), state.keep(kind([3, 0, 2])))
        logits, _ = one.step(torch.tensor([20, 21]), state.keep(kind([1])))
        results.append(logits.double())
    assert_close(*results, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("k", [1, 2, 6, V - 3, V + 9])
def test_top_k_are_the_most_probable_of_the_logits(k):
    packed = native(made())
    tokens = torch.tensor([4, 5, 6, 7])
    for must in (None, torch.tensor([PAD, 9, PAD, 1])):
        logits, _ = packed.step(tokens, packed.start(make_source(SRC), 1))
        values, found, _ = packed.top_k(tokens, packed.start(make_source(SRC), 1), must, k)
        expected, ids = top_k(allowed_log_probs(logits.double(), must), k)
        assert values.shape == found.shape == (4, min(k, V))
        assert_close(values.double(), expected, rtol=1e-5, atol=1e-5)
        said = expected > -torch.inf
        assert found[said].equal(ids[said])
        assert (found[said] >= EOS).all() or must is not None
        every, _ = packed.decoder.log_probs(
            tokens.numpy(), packed.start(make_source(SRC), 1), None if must is None else must.numpy()
        )
        assert_close(torch.from_numpy(every).double(), allowed_log_probs(logits.double(), must), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_words", [7, 64, 65, 127, 1000])
def test_top_k_of_many_and_few_words(n_words):
    torch.manual_seed(0)
    sizes = ModelSettings(n_encoder_layers=1, n_decoder_layers=1, d_model=12, n_heads=3, d_ff=17)
    packed = native(build_model(sizes, (n_words, n_words)).eval())
    tokens, src = torch.arange(40) % n_words, make_source([[4, 5]] * 40)
    logits, _ = packed.step(tokens, packed.start(src, 1))
    values, found, _ = packed.top_k(tokens, packed.start(src, 1), None, 5)
    expected, ids = top_k(allowed_log_probs(logits, None), 5)
    assert_close(values, expected, rtol=1e-5, atol=1e-5)
    said = expected > -torch.inf
    assert found[said].equal(ids[said])


def test_of_equal_words_the_first_is_chosen_first():
    model = made(tie="none")
    model.output.table.weight.data[:] = model.output.table.weight.data[5]
    packed = native(model)
    _, found, _ = packed.top_k(torch.tensor([4, 5, 6, 7]), packed.start(make_source(SRC), 1), None, 4)
    assert found.tolist() == [[EOS, EOS + 1, EOS + 2, EOS + 3]] * 4


SEARCHES = [("greedy", {}), ("beam", {"beam": 4, "n_best": 3}), ("beam", {"beam": 1}), ("sample", {"n_best": 2})]


@pytest.mark.parametrize(("method", "changes"), SEARCHES)
@pytest.mark.parametrize("prefix", [None, [[5, 6], [], [7], []]])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_searches_find_what_they_find_with_the_transformer(method, changes, prefix, position):
    model = made(32, 4, tie="none", position=PartSettings(position))
    settings = DecodeSettings(method=method, max_ratio=2.0, max_extra=5, **changes)
    decoders = PlainDecoder(exact(model)), native(model).decoder
    plain, fast = (SEARCH[method](one, SRC, settings, prefix) for one in decoders)
    assert len({tuple(some[0].ids) for some in plain}) > 1, "this model says the same to everything"
    assert [[each.ids for each in some] for some in fast] == [[each.ids for each in some] for some in plain]
    for some, others in zip(fast, plain, strict=True):
        assert_close([each.score for each in some], [each.score for each in others], rtol=1e-4, atol=1e-4)


def test_a_model_that_is_no_float32_is_left_to_pytorch():
    assert type(select_engine(exact(made()))) is PlainEngine


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("REGARD_NATIVE", "0")
    assert type(select_engine(made())) is PlainEngine


def test_without_a_library_the_work_is_left_to_pytorch(monkeypatch, tmp_path):
    model = made()
    fast = run(native(model))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("regard.native.prebuilt", lambda machine: {})
    with pytest.warns(UserWarning, match="PyTorch translates"):
        slow = select_engine(model)
    assert type(slow) is PlainEngine
    assert_close(run(slow.model), fast, rtol=1e-4, atol=1e-4)


def test_the_model_may_go_on_learning():
    model = made()
    packed, before = native(model), run(exact(model))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    assert_near(run(packed), before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_stand_by_themselves(copied):
    packed = native(made(), "int8")
    expected = run(packed)
    another = Logits(copied(packed.engine))
    del packed
    gc.collect()
    assert_close(run(another), expected, rtol=0, atol=0)


def test_memory_is_given_back(monkeypatch):
    packed, freed = native(made()), []
    monkeypatch.setattr(packed.decoder.library, "free_decoder", freed.append)
    state = packed.start(make_source(SRC), 1)
    address = state.address
    _, state = packed.step(torch.tensor([4, 5, 6, 7]), state)
    assert freed == []
    del state
    gc.collect()
    assert freed == [address]


def test_tokens_and_rows_that_are_not_there_are_refused():
    packed = native(made())
    for token in (-1, V):
        with pytest.raises(IndexError, match="a token is outside of the vocabulary"):
            packed.start(make_source([[4, token, 5]]), 1)
        state = packed.start(make_source([[4]]), 1)
        with pytest.raises(IndexError, match="a token is outside of the vocabulary"):
            packed.step(torch.tensor([token]), state)
        with pytest.raises(IndexError, match="a token is outside of the vocabulary"):
            packed.top_k(torch.tensor([4]), state, torch.tensor([token]), 1)
    state = packed.start(make_source(SRC), 2)
    with pytest.raises(IndexError, match="a row is outside of the batch"):
        state.reorder(np.array([0, 8]))
    with pytest.raises(IndexError, match="a row is outside of the batch"):
        state.keep(np.array([4]))
    with pytest.raises(AssertionError, match="one token for each of 8 rows, got 3"):
        packed.step(torch.tensor([4, 5, 6]), state)


@pytest.mark.parametrize("position", ["sinusoidal", "none", "index", "half_wave", "rotary", "learned"])
def test_codes_without_pytorch_equal_the_position_schemes(position):
    settings = ModelSettings(d_model=15, n_heads=3, position=PartSettings(position))
    torch.manual_seed(0)
    model = build_model(settings, (V, V))
    table = model.src.position.table.detach().numpy() if position == "learned" else None
    codes = make_codes(settings, table)
    expected = PositionTable(model.src.position, model.src.table.weight, 5 if position == "rotary" else 0)
    for first, end in ((0, 7), (3, 4), (500, 530), (700, 701)):
        found = torch.frombuffer(codes(first, end), dtype=torch.float32).view(end - first, -1)
        assert_close(found, expected.at(first, end).detach())

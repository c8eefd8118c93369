"""A search told as it happens is the search that it always is.

Traced equals untraced, to the bit, and leaves no mark on the model.
"""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

import regard
from regard.build import build_model
from regard.config import PRESETS, ModelSettings, parse_settings, preset
from regard.engine import select_engine
from regard.engine.plain import PlainDecoder
from regard.model.quantize import dequantize_linears
from regard.pipeline.live import LiveText
from regard.search.hypothesis import Hypothesis
from tests.parts import exactly
from tests.pipeline.test_translator import V
from tests.search.models import Counting, Echo
from tests.trace.makers import METHODS, MODELS, TEXTS, make_model, make_translator, one_trace

SEARCHES = ("greedy", "beam")


@pytest.mark.parametrize("method", SEARCHES)
@pytest.mark.parametrize(("family", "scheme"), MODELS[::4])
def test_what_is_told_last_is_what_is_found(family, scheme, method):
    translator = make_translator(make_model(family, scheme), **METHODS[method])
    for text in ("abc", "bad cab"):
        told = []
        found = LiveText(translator, text, translator.settings, []).follow(told.append)
        assert found == translator.translate(text)[0]
        assert [len(each.tokens) for each in told[:2]] == [1, 2][: len(told)]


@pytest.mark.parametrize("text", ["bad cab", "jihgfedcba", "dead bee"])
def test_what_leads_is_the_best_of_what_the_search_keeps(text):
    translator = make_translator(make_model(), method="beam", beam=4, max_extra=12)
    told = []
    LiveText(translator, text, translator.settings, []).follow(told.append)
    nodes = regard.trace(translator, text).tree.nodes
    for step, now in enumerate(told):
        best = max((node.total, node.number) for node in nodes if node.step == step and node.fate in {"kept", "open"})
        assert now.score * (step + 1) == pytest.approx(best[0], abs=1e-9)
        assert now.tokens[-1] == nodes[best[1]].piece


def test_greedy_search_tells_each_token_once():
    translator = make_translator(make_model(), method="greedy")
    told = []
    found = LiveText(translator, "abc", translator.settings, []).follow(told.append)
    assert [each.tokens for each in told][: len(found.tokens)] == [
        found.tokens[: n + 1] for n in range(len(found.tokens))
    ]


def test_a_prefix_is_told_from_the_beginning():
    translator = make_translator(make_model(), **METHODS["beam"])
    prefix, told = translator.tokenizer.encode("ha", "tgt"), []
    found = LiveText(translator, "abc", translator.settings, prefix).follow(told.append)
    assert told[1].text == "ha" and found == translator.translate("abc", prefix="ha")[0]


def test_a_long_text_goes_on_where_its_last_part_ended():
    translator = make_translator(make_model(), method="greedy")
    told, text = [], "bad cab. " * 5
    found = LiveText(translator, text, translator.settings, []).follow(told.append)
    assert found.tokens == translator.translate(text)[0].tokens  # scores differ in the last digit by the batch
    lengths = [len(each.tokens) for each in told]
    assert lengths == sorted(lengths) and lengths[-1] == len(found.tokens)


def test_nothing_is_told_of_nothing():
    translator = make_translator(make_model())
    assert LiveText(translator, " ", replace(translator.settings), []).follow(pytest.fail).text == ""


def test_who_listens_can_end_it():
    translator, heard = make_translator(make_model()), []

    def enough(now):
        heard.append(now)
        raise KeyError("enough")

    with pytest.raises(KeyError):
        LiveText(translator, "abc", translator.settings, []).follow(enough)
    assert len(heard) == 1


def assert_equal(translator, texts=TEXTS, **given):
    """Asserts that a traced run gives what an untraced one does, and that its traces tell of that very run."""
    found, expected = regard.trace_texts(translator, texts, **given), translator.translate(texts, **given)
    assert [one.translation for one in found] == expected
    for one, translation in zip(found, expected, strict=True):
        best = [one_trace.tree.hypothesis(one_trace.tree.best) for one_trace in one.traces]
        pieces = [translator.tokenizer.pieces(each.ids, "tgt") for each in best]
        assert [piece for part in pieces for piece in part] == translation.tokens
        for trace, hypothesis in zip(one.traces, best, strict=True):
            assert [step.log_prob for step in trace.steps] == hypothesis.token_log_probs
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("family", "scheme"), MODELS, ids=["-".join(parts) for parts in MODELS])
def test_every_scheme_traced_equals_untraced(family, scheme, method):
    translator = make_translator(make_model(family, scheme), **METHODS[method])
    check = assert_equal(translator, ["abc"])[0].trace.check()
    assert check.weights < 1e-12
    assert check.log_prob < 1e-10


@pytest.fixture(scope="module", params=[(name, family) for name in PRESETS for family in ("transformer", "recurrent")])
def of_preset(request):
    """Makes the quickest model there is of a preset's size, as it is loaded."""
    torch.manual_seed(3)
    name, family = request.param
    sizes = parse_settings(ModelSettings, {"tie": "target", **preset(name, family).get("model", {})})
    with torch.no_grad():
        return select_engine(build_model(sizes, (V, V)).eval())


@pytest.mark.parametrize("method", METHODS)
def test_every_preset_traced_equals_untraced(of_preset, method):
    found = assert_equal(make_translator(of_preset, **METHODS[method], max_extra=2), ["abc"])
    check = found[0].trace.check()
    assert check.weights < 1e-5
    assert check.log_prob < 1e-4
    assert max(look.terms(0).error for look in found[0].trace.attention) < 1e-5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("family", "attention"), [("transformer", "scaled_dot"), ("recurrent", "additive")])
def test_8_bit_models_replay_in_float_and_say_how_far_off_that_is(family, attention, method):
    model = make_model(
        family, attention=attention, dtype=torch.float32, d_model=24, n_heads=2 if family[0] == "t" else 1
    )
    found = assert_equal(make_translator(select_engine(model, "int8"), **METHODS[method]))
    checks = [trace.check() for one in found for trace in one.traces]
    assert max(check.weights for check in checks) < 1e-5
    assert 1e-4 < max(check.log_prob for check in checks) < 1.0


def test_the_maps_of_an_8_bit_model_are_restored_for_the_replay():
    """Not packable, so that its very modules hold 8-bit maps."""
    model = make_model("transformer", "t5", dtype=torch.float32, d_model=24)
    small = select_engine(model, "int8")
    look = one_trace(small).encoder[0]
    assert look.q.dtype == torch.float32
    rounded = one_trace(dequantize_linears(deepcopy(small.model))).encoder[0]
    exactly(look.q, rounded.q)
    assert 1e-5 < (look.weights() - one_trace(model).encoder[0].weights()).abs().max() < 0.05


def test_sentences_that_leave_the_batch_early_keep_their_own_trees():
    translator = make_translator(make_model(), **METHODS["beam"], batch_tokens=1000, max_ratio=0.5, max_extra=1)
    texts = ["abc abc", "a", "hello", "bad", "face dead bee"]
    together = assert_equal(translator, texts)
    assert len({len(one.trace.steps) for one in together}) > 2
    for one, text in zip(together, texts, strict=True):
        alone = regard.trace(translator, text).tree
        assert [(node.token, node.fate) for node in one.trace.tree.nodes] == [
            (node.token, node.fate) for node in alone.nodes
        ]


def test_prefixes_parts_and_windows_are_traced_too(monkeypatch):
    translator = make_translator(make_model(), **METHODS["beam"])
    assert_equal(translator, prefix="hi")
    translator.max_len = 4
    found = assert_equal(translator, ["abc. def. ab", "hi"])
    assert [len(one.traces) for one in found] == [3, 1]
    with pytest.raises(ValueError, match="one part to have one trace, got 3"):
        _ = found[0].trace
    assert [trace.text for trace in found[0].traces] == ["abc.", "def.", "ab"]
    monkeypatch.setattr("regard.trace.run.WINDOW", 2)
    monkeypatch.setattr("regard.pipeline.translator.WINDOW", 2)
    assert_equal(make_translator(make_model(), **METHODS["sample"]))


class Asked(PlainDecoder):
    """Records how many continuations it was asked for."""

    def top_k(self, tokens, state, forced, k):
        self.model.rows.append(k)
        return super().top_k(tokens, state, forced, k)


def test_a_search_asks_the_model_for_nothing_more():
    model = Counting(make_model())
    translator = make_translator(model, **METHODS["beam"])
    translator.engine._decoder = Asked(model)
    translator.translate(TEXTS)
    rows, read = model.rows[:], model.read[:]
    model.rows.clear(), model.read.clear()
    with pytest.raises(ValueError, match="to be looked into, got Counting"):
        regard.trace_texts(translator, TEXTS)
    assert (model.rows, model.read) == (rows, read)


def test_the_model_is_left_as_it_was():
    model = make_model(scheme="rotary", dropout=0.5).train()
    names = [name for name, _ in model.named_modules()]
    modules = [id(module) for module in model.modules()]
    trace = one_trace(model)
    assert not model.training and trace.check().log_prob < 1e-10, "dropout rests, from the engine on"
    assert [name for name, _ in model.named_modules()] == names
    assert [id(module) for module in model.modules()] == modules
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_trace_names_what_was_read_and_said():
    trace = one_trace(make_model(), "hello", max_extra=3)
    assert trace.source == (*"hello", "</s>")
    assert trace.read == ("<s>", *trace.target[:-1])
    assert trace.text == "hello"
    assert len(trace.target) == len(trace.steps) <= 3
    for step in trace.steps:
        most = [each.log_prob for each in step.alternatives]
        assert most == sorted(most, reverse=True)
        assert step.alternatives[0].piece == step.piece, "greedy says the likeliest"
    for look in trace.attention:
        rows, columns = {"encoder": (6, 6), "decoder": (len(trace.read),) * 2, "cross": (len(trace.read), 6)}[look.kind]
        assert look.sizes == (2, rows, columns)


def test_an_unfinished_path_is_read_as_far_as_it_went():
    trace = one_trace(make_model(), method="beam", beam=2, max_extra=2)
    for node in trace.tree.leaves("open", "dropped"):
        other = trace.at(node.number)
        assert len(other.steps) == node.step + 1
        assert other.check().log_prob < 1e-10


def test_unknown_models_are_refused_by_name():
    with pytest.raises(ValueError, match="one of Transformer, Recurrent, DecoderOnly to be looked into, got Echo"):
        regard.trace(make_translator(Echo(V)), "abc")


def test_settings_of_one_call_are_kept_in_the_trace():
    translator = make_translator(make_model())
    chosen = replace(translator.settings, method="sample", n_best=2, seed=3)
    trace = regard.trace(translator, "abc. fed", chosen)
    assert trace.settings == replace(chosen, split="overlong"), "one trace is of a text that is read at once"
    assert isinstance(trace.tree.hypothesis(trace.end_node), Hypothesis)


@pytest.mark.parametrize(("family", "attention"), [("transformer", "scaled_dot"), ("recurrent", "additive")])
def test_a_run_in_bfloat16_is_looked_at_in_float32(family, attention):
    model = make_model(family, attention=attention, dtype=torch.bfloat16, n_heads=2 if family == "transformer" else 1)
    trace = assert_equal(make_translator(model))[0].trace
    assert {look.q.dtype for look in trace.attention} == {torch.float32}
    assert 0 < trace.check().weights < 0.02, "the layer rounded its output, we do not"
    assert max(look.terms(0).error for look in trace.attention) < 0.02


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("family", "attention"), [("transformer", "scaled_dot"), ("recurrent", "additive")])
def test_a_gpu_s_run_is_traced_too(family, attention, dtype, method):
    """The looks lie on the CPU, in float32; a GRU is read step by step, past the kernel for whole sentences."""
    n_heads = 2 if family == "transformer" else 1
    model = make_model(family, attention=attention, dtype=dtype, d_model=32, n_heads=n_heads).to("cuda")
    for one in assert_equal(make_translator(model, **METHODS[method])):
        for trace in one.traces:
            assert {(look.q.dtype, look.q.device.type) for look in trace.attention} == {(torch.float32, "cpu")}
            check = trace.check()
            assert check.weights < (1e-5 if dtype == torch.float32 else 0.02)
            assert check.log_prob < (1e-3 if dtype == torch.float32 else 0.3)
            assert {look.kind for look in trace.attention} >= {"cross"}

"""The replay in NumPy shows what PyTorch's modules show, for every model that the C++ library packs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from regard.config import PartSettings
from regard.engine.native_weights import POSITION_CODES
from regard.engine.pack import from_transformer, pack_for_cpu
from regard.trace import file, run
from regard.trace.attention_map import as_array
from regard.trace.native_replay import ACTIVATION, native_replay
from regard.trace.replay import replay
from tests.trace.makers import make_model, make_translator

SOURCE, SAID = [5, 6, 7, 8, 9], [6, 4, 9, 7, 3]
ASKED = ("weights", "scores", "output", "entropy")
ODD = {"d_model": 15, "n_heads": 3, "n_encoder_layers": 2, "n_decoder_layers": 2}  # an odd width of a head
MODELS = {
    **{name: {"position": PartSettings(name), **ODD} for name in POSITION_CODES},
    **{f"{name} before": {"norm_place": "before", **ODD, "position": PartSettings(name)} for name in POSITION_CODES},
    **{name: {"activation": name} for name in ACTIVATION},
    "rms": {"norm": "rms", **ODD},
    "rms before": {"norm": "rms", "norm_place": "before", "position": PartSettings("learned")},
    "short codes": {"d_embedding": 7, **ODD},
    "turns slowly": {"position": PartSettings("rotary", {"base": 500.0}), **ODD},
    **{f"tie {name}": {"tie": name} for name in ("all", "inputs", "target")},
}
LONG = {"position": PartSettings("sinusoidal"), **ODD, "n_heads": 5}


def near(found, expected, atol=1e-5):
    """Asserts that numbers of NumPy are those of PyTorch."""
    assert isinstance(found, np.ndarray) and found.dtype.kind == as_array(expected).dtype.kind
    torch.testing.assert_close(torch.from_numpy(found).double(), expected.double(), atol=atol, rtol=1e-5)


def assert_alike(found, expected):
    """Asserts that two replays show the same, head by head and all together."""
    near(found.log_probs, expected.log_probs)
    near(found.top_log_probs, expected.top_log_probs)
    assert found.tokens.tolist() == expected.tokens.tolist()
    for a, b in zip(found.residual_norms, expected.residual_norms, strict=True):
        assert (a.stack, a.layer, a.sublayer) == (b.stack, b.layer, b.sublayer)
        for name in ("before", "update", "after"):
            near(getattr(a, name), getattr(b, name), atol=3e-5)
    for a, b in zip(found.attention, expected.attention, strict=True):
        assert (a.kind, a.layer, a.sizes) == (b.kind, b.layer, b.sizes)
        for head in (None, 0, a.n_heads - 1):
            for ask in ASKED:
                near(getattr(a, ask)(head), getattr(b, ask)(head))
            assert a.terms(head).names == b.terms(head).names
            near(a.terms(head).terms, b.terms(head).terms, atol=2e-5)
            near(a.terms(head).total, b.scores(head))
            assert a.terms(head).error < 1e-5
        assert all((a.allowed(head) == b.allowed(head).numpy()).all() for head in range(a.n_heads))
        assert a.error() < 1e-6 and a.n_bytes >= b.n_bytes > 0


@pytest.mark.filterwarnings("ignore:position 'index' with pre-norm is the same as none")
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_both_replays_show_the_same(changes):
    model = make_model(dtype=torch.float32, **changes)
    for source, said in ((SOURCE, SAID), ([], [3]), ([7], [6])):
        assert_alike(native_replay(from_transformer(model), source, said), replay(model, source, said))


def test_long_texts_go_on_where_known_positions_end():
    """Codes beyond those that are kept are computed; small differences do not add up along a text."""
    model = make_model(dtype=torch.float32, **LONG)
    source, said = ([4 + i % 9 for i in range(n)] for n in (530, 520))
    found, expected = native_replay(from_transformer(model), source, said), replay(model, source, said)
    near(found.log_probs, expected.log_probs)
    for a, b in zip(found.attention, expected.attention, strict=True):
        near(a.weights(1), b.weights(1))
        assert a.terms(1).error < 1e-5


def test_norms_keep_their_own_epsilon():
    model = make_model(dtype=torch.float32, norm="rms")
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.RMSNorm)):
        norm.eps = 0.5
    assert_alike(native_replay(from_transformer(model), SOURCE, SAID), replay(model, SOURCE, SAID))


def test_a_position_that_ends_is_refused_as_the_model_refuses_it():
    model = make_model(dtype=torch.float32, position=PartSettings("learned", {"max_len": 4}))
    with pytest.raises(ValueError, match="positions must be below 4, the end of the table, got 5"):
        native_replay(from_transformer(model), SOURCE, SAID)


def test_a_prefix_may_hold_what_may_not_follow():
    """UNK, for one: its log-probability is shown, and no alternative is one."""
    model = make_model(dtype=torch.float32)
    found, expected = native_replay(from_transformer(model), SOURCE, [1, 6]), replay(model, SOURCE, [1, 6])
    near(found.log_probs, expected.log_probs)
    assert found.tokens[:, 0].min() > 2 and not (found.tokens == 1)[np.isfinite(found.top_log_probs)].any()


def test_a_head_that_is_not_there_is_refused():
    seen = native_replay(from_transformer(make_model(dtype=torch.float32)), SOURCE, SAID).attention[0]
    for ask in (*ASKED, "terms", "allowed"):
        with pytest.raises(ValueError, match=r"head must lie in 0 … 1 of encoder layer 0, got 2"):
            getattr(seen, ask)(2)


@pytest.fixture
def without_torch(monkeypatch):
    """Takes the way that is taken where PyTorch is not installed."""
    for module in (run, file):
        monkeypatch.setattr(module, "is_installed", lambda package: False)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", ["zh-en", "en-zh"])
def test_bundled_models_are_seen_alike(name, precision, monkeypatch):
    """Their weights are stored in 8 bits."""
    text = {"zh-en": "我昨天在图书馆看到了你的朋友。", "en-zh": "I saw your friend in the library."}[name]
    translator = regard.load(name, precision)
    expected = regard.trace(translator, text)
    monkeypatch.setattr(run, "is_installed", lambda package: False)
    found = regard.trace(translator, text)
    assert (found.output, found.target) == (expected.output, expected.target)
    assert isinstance(found.encoder[0].weights(), np.ndarray) and isinstance(
        expected.encoder[0].weights(), torch.Tensor
    )
    for a, b in zip(found.attention, expected.attention, strict=True):
        for ask in ASKED:
            near(getattr(a, ask)(), getattr(b, ask)(), atol=1e-4 if ask == "scores" else 1e-5)
        near(a.terms().terms, b.terms().terms, atol=1e-4)
    for a, b in zip(found.steps, expected.steps, strict=True):
        assert a.replayed == pytest.approx(b.replayed, abs=1e-5)
        assert [each.piece for each in a.alternatives] == [each.piece for each in b.alternatives]
    assert found.check().log_prob < (1e-4 if precision == "float32" else 1.0)
    other = found.tree.leaves("dropped")[0].number
    assert found.at(other).target == expected.at(other).target


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary"])
def test_a_file_goes_from_either_to_the_other(scheme, tmp_path, monkeypatch):
    engine = pack_for_cpu(make_model(scheme=scheme, dtype=torch.float32), "float32")
    path, read = tmp_path / "x.safetensors", {}
    for writer in (True, False):
        monkeypatch.setattr(run, "is_installed", lambda package, writer=writer: writer)
        trace = regard.trace(make_translator(engine), "abc")
        trace.save(path)
        for reader in (True, False):
            monkeypatch.setattr(file, "is_installed", lambda package, reader=reader: reader)
            read[writer, reader] = regard.load_trace(path)
            assert read[writer, reader].check().weights < 1e-6
    for kind, reader in ((torch.Tensor, True), (np.ndarray, False)):
        for writer in (True, False):
            trace = read[writer, reader]
            assert isinstance(trace.encoder[0].weights(), kind) and isinstance(trace.residual_norms[0].after, kind)
            for a, b in zip(trace.attention, read[True, True].attention, strict=True):
                near(as_array(a.weights()), b.weights())
                assert a.terms().names == b.terms().names
                near(as_array(a.terms().terms), b.terms().terms)


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("change", [{"scheme": "alibi"}, {"attention": "dot"}], ids=str)
def test_a_file_that_only_pytorch_shows_names_its_extra(change, tmp_path):
    path = tmp_path / "x.safetensors"
    regard.trace(make_translator(make_model(dtype=torch.float32, **change)), "abc").save(path)
    with pytest.raises(ImportError, match=r"a trace of this kind of attention needs torch, .*regard\[train\]"):
        regard.load_trace(path)


@pytest.mark.usefixtures("without_torch")
def test_a_broken_file_is_refused_without_torch_too(tmp_path):
    path = tmp_path / "x.safetensors"
    trace = regard.trace(make_translator(pack_for_cpu(make_model(dtype=torch.float32), "float32")), "abc")
    broken = replace(trace.attention[0], k=np.full_like(trace.attention[0].k, np.nan))
    replace(trace, attention=(broken, *trace.attention[1:])).save(path)
    with pytest.raises(ValueError, match=r"x.safetensors: this trace is not whole .*k must be finite numbers"):
        regard.load_trace(path)

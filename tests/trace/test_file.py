"""A trace goes to one file and comes back the same."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.attention import ATTENTION, ScaledDot
from regard.trace import file
from regard.trace.attention import GivenAttention
from regard.trace.external import trace_from_attention, watch
from tests.trace.makers import METHODS, make_model, one_trace

CASES = [("scaled_dot", scheme) for scheme in ("sinusoidal", "learned beside", "rotary", "t5", "shaw with values")]
CASES += [(attention, "none") for attention in ATTENTION if attention != "scaled_dot"]


def assert_same(one, other):
    """Asserts that two traces show the same, to the bit."""
    for name in ("text", "output", "src_lang", "tgt_lang", "settings", "source", "read", "steps", "end_node"):
        assert getattr(one, name) == getattr(other, name)
    assert one.tree.nodes == other.tree.nodes and one.tree.best == other.tree.best
    assert one.check() == other.check()
    for a, b in zip(one.attention, other.attention, strict=True):
        assert (a.kind, a.layer, a.sizes) == (b.kind, b.layer, b.sizes)
        for ask in ("weights", "scores", "output"):
            assert torch.equal(getattr(a, ask)(), getattr(b, ask)())
        assert a.terms().names == b.terms().names and torch.equal(a.terms().terms, b.terms().terms)
    for a, b in zip(one.residual_norms, other.residual_norms, strict=True):
        assert (a.stack, a.layer, a.sublayer) == (b.stack, b.layer, b.sublayer)
        assert torch.equal(torch.stack([a.before, a.update, a.after]), torch.stack([b.before, b.update, b.after]))


@pytest.mark.parametrize(("attention", "scheme"), CASES)
def test_what_is_saved_comes_back_to_the_bit(attention, scheme, tmp_path):
    trace = one_trace(make_model(scheme=scheme, attention=attention, dtype=torch.float32), "abc", max_extra=3)
    trace.save(tmp_path / "x.safetensors")
    assert_same(trace, regard.load_trace(tmp_path / "x.safetensors"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_beams_samples_and_the_gru_come_back_too(tmp_path):
    path = str(tmp_path / "x.safetensors")
    for method in ("beam", "sample"):
        model = make_model("recurrent", "none", "additive", torch.float32, n_heads=1)
        trace = one_trace(model, **METHODS[method], top_k=5)
        trace.save(path)
        found = regard.load_trace(path)
        assert_same(trace, found)
        other = next(node for node in trace.tree.leaves() if node.number != trace.end_node)
        with pytest.raises(ValueError, match=rf"holds one path, to node {trace.end_node}, got {other.number}"):
            found.at(other.number)


def test_other_people_s_looks_come_back(tmp_path):
    torch.manual_seed(1)
    module = torch.nn.MultiheadAttention(6, 2, batch_first=True).eval()
    x = torch.randn(1, 4, 6)
    with watch(module) as seen, torch.no_grad():
        module(x, x, x, attn_mask=torch.triu(torch.ones(4, 4, dtype=torch.bool), 1))
    trace = seen.trace(list("abcd"))
    trace.save(tmp_path / "x")
    (look,), (found,) = trace.attention, regard.load_trace(tmp_path / "x").attention
    assert torch.equal(look.weights(), found.weights()) and look.error() == found.error() < 1e-6
    given = trace_from_attention((GivenAttention("encoder", 0, torch.eye(2)[None]),), ["a", "b"], [])
    given.save(tmp_path / "x")
    assert torch.equal(regard.load_trace(tmp_path / "x").encoder[0].weights(0), torch.eye(2))


@pytest.fixture
def saved(tmp_path):
    one_trace(make_model(dtype=torch.float32), "abc", max_extra=2).save(tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


def rewritten(path, change, tensors=None):
    """Writes a trace anew with other notes."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as opened:
        notes = json.loads(opened.metadata()["trace"])
    change(notes)
    save_file(tensors or load_file(path), path, {"trace": json.dumps(notes)})


def test_a_missing_broken_foreign_or_newer_file_is_named(saved, tmp_path):
    with pytest.raises(ValueError, match=r"nowhere: there is no such trace"):
        regard.load_trace(tmp_path / "nowhere")
    (tmp_path / "half").write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"half: a trace must be a whole safetensors file .* save it again"):
        regard.load_trace(tmp_path / "half")
    save_file({"weight": torch.ones(2)}, tmp_path / "model", {"format": "pt"})
    with pytest.raises(ValueError, match=r"model: a trace must have notes called 'trace', got format: regard trace"):
        regard.load_trace(tmp_path / "model")
    rewritten(saved, lambda notes: notes.update(format=2, regard="9.9"))
    with pytest.raises(ValueError, match=r"must be 1 here, got 2 of regard 9.9: read it with that version"):
        regard.load_trace(saved)


def test_a_file_that_lacks_a_part_is_named(saved):
    whole = saved.read_bytes()
    tensors = load_file(saved)
    rewritten(saved, lambda notes: None, {name: x for name, x in tensors.items() if name != "look.0.q"})
    with pytest.raises(ValueError, match=r"x.safetensors: this trace is not whole \(KeyError\('q'\)\): save it again"):
        regard.load_trace(saved)
    saved.write_bytes(whole)
    rewritten(saved, lambda notes: notes["looks"][0].update(form="guessed"))
    with pytest.raises(ValueError, match="unknown form of a look 'guessed'"):
        regard.load_trace(saved)


def test_a_file_is_there_whole_or_as_it_was(saved, monkeypatch):
    before = saved.read_bytes()

    def full(path, tensors, notes, save):
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(file, "write_arrays", full)
    with pytest.raises(OSError, match="no space left"):
        regard.load_trace(saved).save(saved)
    assert saved.read_bytes() == before and len(list(saved.parent.iterdir())) == 1


def test_an_attention_that_nobody_could_make_again_is_refused(saved):
    class Mine(ScaledDot):
        pass

    trace = regard.load_trace(saved)
    strange = replace(trace, attention=(replace(trace.attention[0], attention=Mine()),))
    with pytest.raises(ValueError, match="must stand in the table ATTENTION to be saved in a trace, got Mine: add it"):
        strange.save(saved)

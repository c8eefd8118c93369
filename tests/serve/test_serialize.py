"""The JSON of a trace agrees with the trace; questions on a server are answered as by the reader itself."""

import json
import zlib
from base64 import b64decode

import numpy as np
import pytest
import torch

import regard
from regard.qa.model import load_reader, save_reader
from regard.qa.predict import answer_questions
from regard.serve.models import check_folders
from regard.serve.schema_api import to_json
from regard.serve.schema_trace import Aligning
from regard.serve.serialize import (
    dequantize,
    join_pieces,
    make_head,
    make_view,
    pack,
    quantize,
    round_number,
    round_numbers,
)
from regard.trace.attention import GivenAttention
from regard.trace.external import trace_from_attention
from regard.trace.head_choice import HeadChoice
from tests.readers import WINDOWS, questions, small_reader
from tests.serve.server import client_of
from tests.trace.makers import make_model, make_translator, one_trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("readers") / "facts"
    save_reader(path, small_reader(windows=WINDOWS), {})
    return path


@pytest.fixture(scope="module")
def question():
    return questions("en")[1]


def test_a_question_is_answered_as_the_reader_answers_it(models, folder, question):
    (best,) = answer_questions(load_reader(folder), [question], 5)
    with client_of(models, readers=(folder,)) as client:
        assert client.get("/readers").json() == {"readers": ["facts"]}
        response = client.post("/answer", json={"question": question.text, "context": question.context}).json()
    assert [each["text"] for each in response["stretches"]] == [each.text for each in best.spans]
    assert response["nowhere"] == pytest.approx(best.no_answer)
    first = response["stretches"][0]
    assert question.context[first["start"] : first["stop"]] == first["text"]
    words = [word["text"] for word in response["context"][slice(*response["answer"])]]
    assert first["text"] in " ".join(words)
    assert not response["whole"] and [kind["kind"] for kind in response["view"]["kinds"]] == ["encoder"]


def test_errors_say_what_to_do(models, folder, client):
    body = {"question": "Who?", "context": "Anna."}
    response = client.post("/answer", json=body)
    assert response.status_code == 400 and "--reader" in response.json()["error"]
    with client_of(models, readers=(folder,)) as other:
        response = other.post("/answer", json={**body, "reader": "fact"})
        assert response.status_code == 400 and "did you mean 'facts'?" in response.json()["error"]
        response = other.post("/answer", json={"question": "Who?", "context": "  "})
        assert response.status_code == 400 and "must have words" in response.json()["error"]


def test_folders_without_a_reader_or_of_one_name_are_refused(tmp_path, folder):
    with pytest.raises(ValueError, match="holds no reader"):
        check_folders("reader", [tmp_path], "regard qa train")
    with pytest.raises(ValueError, match="facts, facts"):
        check_folders("reader", [folder, folder], "regard qa train")


SIZES = {"n_encoder_layers": 2, "n_decoder_layers": 1}


@pytest.fixture(scope="module")
def trace():
    return one_trace(make_model(**SIZES), "bad cab", method="beam", beam=3)


def unpack(kind):
    """Unpack weights as a browser does."""
    raw = np.frombuffer(zlib.decompress(b64decode(kind.weights), -15), np.uint8)
    return (raw / 255).reshape(kind.n_layers, kind.n_heads, kind.n_queries, kind.n_keys) ** 2


def test_unpacked_weights_are_the_true_ones_but_for_rounding(trace):
    view = make_view(trace)
    assert [kind.kind for kind in view.kinds] == ["encoder", "decoder", "cross"]
    for kind in view.kinds:
        for layer, found in enumerate(unpack(kind)):
            true = trace.attention_map(kind.kind, layer).weights().numpy()
            assert (np.abs(found - true) <= np.sqrt(true) / 255 + 1 / 255**2).all()
            assert (found[true == 0] == 0).all()


@pytest.mark.parametrize("weight", [0.0, 1e-6, 1e-3, 0.25, 0.5, 1.0])
def test_rounding_keeps_small_weights_apart_from_none(weight):
    back = dequantize(quantize(np.array([weight])))
    torch.testing.assert_close(
        torch.from_numpy(back), torch.tensor([weight], dtype=torch.float64), rtol=0.13, atol=4e-6
    )


def test_parts_are_packed_as_one_stream():
    one, other = np.arange(7, dtype=np.uint8), np.arange(5, dtype=np.uint8)
    assert zlib.decompress(b64decode(pack([one, other])), -15) == bytes([*range(7), *range(5)])


def test_a_view_agrees_with_its_trace(trace):
    view = make_view(trace, "tiny", "name")
    assert (view.id, view.model, view.text, view.output) == ("name", "tiny", trace.text, trace.output)
    assert view.source.pieces == list(trace.source) and view.target.pieces == list(trace.target)
    assert sorted(place for word in view.read.words for place in word.places) == list(range(len(trace.read)))
    assert [step.piece for step in view.steps] == list(trace.target)
    assert view.tree.best_path[-1] == view.tree.best == view.leaf
    assert [node.total for node in view.tree.nodes] == pytest.approx(
        [node.total for node in trace.tree.nodes], rel=1e-6
    )
    assert view.tree.leaves[0].node == view.leaf and view.tree.leaves[0].text == trace.output
    assert view.flows[0].after == pytest.approx(trace.residual_norms[0].after.tolist(), rel=1e-6)
    assert view.checks.weights is not None and view.checks.weights < 1e-6


def test_entropy_is_a_share_of_the_largest(trace):
    for kind in make_view(trace).kinds:
        assert all(0 <= share <= 1 for layer in kind.entropy for share in layer)
    even = GivenAttention("encoder", 0, torch.full((1, 4, 4), 0.25))
    (kind,) = make_view(trace_from_attention((even,), list("abcd"), [])).kinds
    assert kind.entropy == [[1.0]]


def test_a_layer_with_fewer_heads_is_filled_up():
    looks = tuple(GivenAttention("encoder", i, torch.full((heads, 2, 2), 0.5)) for i, heads in enumerate((3, 1)))
    (kind,) = make_view(trace_from_attention(looks, ["a", "b"], [])).kinds
    assert (kind.n_layers, kind.n_heads) == (2, 3) and kind.entropy[1] == [1.0, None, None]
    assert unpack(kind)[1, 1:].sum() == 0


def test_a_view_is_json_that_a_browser_reads(trace):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    response = json.loads(to_json(make_view(trace)), parse_constant=refuse)
    assert response["kinds"][0]["n_layers"] == 2
    unknown = trace_from_attention((GivenAttention("cross", 0, torch.ones(1, 2, 1)),), ["x"], ["<s>", "y"])
    response = json.loads(to_json(make_view(unknown)), parse_constant=refuse)
    assert response["steps"][0]["log_prob"] is None and response["checks"]["weights"] is None


def test_300_tokens_and_144_heads_stay_below_15_megabytes():
    """Random weights compress worst; those of a model are half as large."""
    torch.manual_seed(3)
    pieces, shape = [f"▁w{i}" for i in range(300)], (8, 300, 300)
    looks = [
        GivenAttention(kind, layer, (3 * torch.randn(shape)).softmax(-1))
        for kind in ("encoder", "decoder", "cross")
        for layer in range(6)
    ]
    assert len(to_json(make_view(trace_from_attention(tuple(looks), pieces, pieces)))) < 15e6


def test_a_head_has_its_exact_numbers(trace):
    for kind, layer in (("encoder", 0), ("encoder", 1), ("decoder", 0), ("cross", 0)):
        look, head = trace.attention_map(kind, layer), make_head(trace, kind, layer, 1)
        assert np.array(head.weights) == pytest.approx(look.weights(1).numpy(), rel=1e-6)
        assert np.array(head.scores) == pytest.approx(look.scores(1).numpy(), rel=1e-6)
        total = np.sum([term.values for term in head.terms], axis=0)
        assert total == pytest.approx(np.array(head.scores), abs=1e-5 * np.abs(head.scores).max())
        assert head.error < 1e-6 and len(head.queries) == len(head.weights)
    assert make_head(trace, "encoder", 0, 0).terms[0].name == "content–content"


def test_a_head_of_given_weights_has_weights_alone():
    head = make_head(
        trace_from_attention((GivenAttention("encoder", 0, torch.eye(2)[None]),), ["a", "b"], []), "encoder", 0, 0
    )
    assert head.weights == [[1, 0], [0, 1]] and head.scores is None and head.terms == [] and head.error is None


def test_a_head_that_is_not_there_is_named(trace):
    with pytest.raises(ValueError, match="got 7"):
        make_head(trace, "encoder", 0, 7)
    with pytest.raises(ValueError, match="sideways"):
        make_head(trace, "sideways", 0, 0)


def test_another_hypothesis_has_its_own_view(trace):
    other = next(leaf.node for leaf in make_view(trace).tree.leaves if leaf.node != trace.end_node)
    view = make_view(trace.at(other))
    assert view.leaf == other and view.tree.best == trace.end_node
    assert view.target.pieces == [node.piece for node in trace.tree.path(other)]


def test_every_family_can_be_shown():
    view = make_view(regard.trace(make_translator(make_model("recurrent")), "abc"))
    assert [kind.kind for kind in view.kinds] == ["cross"]


def test_numbers_keep_seven_digits():
    values = torch.tensor([[0.0, 1.0, -1.23456789e-12, 9876543210.0, 1 / 3]], dtype=torch.float64)
    assert round_numbers(values) == [[0.0, 1.0, -1.234568e-12, 9876543000.0, 0.3333333]]
    assert (
        round_number(1 / 3) == 0.3333333 and round_number(float("nan")) is None and round_number(float("-inf")) is None
    )


def test_pieces_are_joined():
    assert join_pieces(["▁In", "tro", "▁", "<0xE8>", "<0xA5>", "<0xBF>", "安", "</s>"]) == "Intro 西安"


def test_the_heads_that_align_best_are_named_if_known(trace):
    assert make_view(trace).aligning is None
    aligning_heads = make_view(trace, aligning=HeadChoice(1, None, "read")).aligning
    assert aligning_heads == Aligning(1, None, "read")

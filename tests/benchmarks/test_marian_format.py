"""What is written for Marian: each array where its C++ looks for it; where it is installed, the same translations."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.peers.firefox import write_firefox_model
from benchmarks.peers.marian_format import (
    ALIGNMENT,
    INT8,
    INTGEMM8,
    SETTINGS,
    int8_item,
    int8_items,
    marian_arrays,
    marian_settings,
    plain_item,
    turn_outputs,
    write_bin,
    write_npz,
    write_shortlist,
    write_vocabulary,
)
from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings
from regard.engine import select_engine
from regard.engine.native_weights import make_codes
from regard.padding import BOS, EOS

V, D, MAX_LEN = 32, 64, 40  # multiples of what Marian's products in 8 bits want
SIZES = {"n_encoder_layers": 2, "n_decoder_layers": 1, "d_model": D, "n_heads": 4, "d_ff": 128}


def codes_of(settings):
    """Return the codes of all positions, a row each."""
    return np.frombuffer(make_codes(settings, None)(0, MAX_LEN), np.float32).reshape(MAX_LEN, -1)


def settings(norm_place: str = "before") -> ModelSettings:
    return ModelSettings(**SIZES, norm_place=norm_place, activation="relu")


def sharp_model(made: ModelSettings) -> nn.Module:
    """Makes a model with parameters large enough to say different things to different sources."""
    torch.manual_seed(0)
    model = build_model(made, (V, V)).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.mul_(2.0 if parameter.dim() == 2 else 1.0)
    return model


def numbers(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def arrays(made: ModelSettings) -> dict[str, np.ndarray]:
    return marian_arrays(numbers(sharp_model(made)), made, codes_of(made))


def read_bin(content: bytes):
    """Yields the name, type, shape and bytes of each array, padding included."""
    version, n_items = np.frombuffer(content, np.uint64, 2).tolist()
    assert version == 1
    heads = np.frombuffer(content, np.uint64, 4 * n_items, 16).reshape(-1, 4).tolist()
    at, names, shapes = 16 + 32 * n_items, [], []
    for length, *_ in heads:
        names.append(content[at : at + length].decode().rstrip("\0"))
        at += length
    for _, _, n_axes, _ in heads:
        shapes.append(tuple(np.frombuffer(content, np.int32, n_axes, at).tolist()))
        at += 4 * n_axes
    at += 8 + int(np.frombuffer(content, np.uint64, 1, at)[0])
    assert at % ALIGNMENT == 0, "arrays are read where they lie"
    for name, shape, (_, kind, _, length) in zip(names, shapes, heads, strict=True):
        yield name, kind, shape, content[at : at + length]
        at += length
    assert at == len(content)


def test_maps_are_turned_and_positions_hold_the_first_token():
    made = settings()
    ours = numbers(sharp_model(made))
    codes = codes_of(made)
    theirs = marian_arrays(ours, made, codes, (EOS,))
    layer = (
        "TransformerBatchDecoder->decoder->layers->at(0)->as<marian::nn::TransformerDecoderLayerWithCrossAttention>()"
    )
    inner = theirs[f"{layer}->filterBlock->layers->at(0)->as<marian::nn::LinearReluDropout>()->weight"]
    assert np.array_equal(inner, ours["decoder.layers.0.feed_forward.inner.weight"].T)
    first = theirs["TransformerBatchDecoder->decoder->positionEmbedding->embeddings"]
    assert np.allclose(first[0], codes[0] + np.sqrt(D) * ours["src.table.weight"][BOS])
    assert np.array_equal(first[1:], codes[1:])
    assert (theirs["decoder_ff_logit_out_b"][0] < 0).nonzero()[0].tolist() == [EOS]


@pytest.mark.parametrize(("norm_place", "n_norms"), [("before", 9), ("after", 7)])
def test_every_array_of_ours_is_written_once(norm_place, n_norms):
    made = settings(norm_place)
    theirs = arrays(made)
    norms = [name for name in theirs if name.endswith("norm->weight")]
    assert len(norms) == n_norms
    n_maps = 2 * (4 + 2) + 1 * (8 + 2)
    assert len(theirs) == 6 + 2 * n_maps + 2 * n_norms


def test_a_binary_file_holds_what_was_written(tmp_path):
    made = settings()
    theirs = turn_outputs(arrays(made))
    write_bin(tmp_path / "model.bin", int8_items(theirs), marian_settings(made, V, MAX_LEN))
    found = {name: rest for name, *rest in read_bin((tmp_path / "model.bin").read_bytes())}
    assert found.keys() == {*theirs, SETTINGS}
    assert found[SETTINGS][0] == INT8
    assert b"enc-depth: 2\n" in found[SETTINGS][2]
    for name, array in theirs.items():
        kind, shape, content = found[name]
        assert shape == array.shape
        if kind == INTGEMM8:
            factor = np.frombuffer(content, np.float32, 1, array.size)
            values = np.frombuffer(content, np.int8, array.size).reshape(array.T.shape).T / factor
            assert np.abs(values - array).max() < 0.51 / factor[0]
        else:
            assert np.array_equal(np.frombuffer(content, np.float32, array.size).reshape(shape), array)
    assert found["decoder_ff_logit_out_W"][0] == INTGEMM8
    assert found["encoder_Wemb"][0] != INTGEMM8


def test_a_shortlist_names_the_pieces_that_there_are(tmp_path):
    write_shortlist(tmp_path / "words.bin", 7, np.array([[-1, -1], [9, 5], [8, -1]]))
    content = (tmp_path / "words.bin").read_bytes()
    head = np.frombuffer(content, np.uint64, 6).tolist()
    assert head[2:] == [7, 2, 4, 3]
    assert np.frombuffer(content, np.uint64, 4, 48).tolist() == [0, 0, 2, 3]
    assert np.frombuffer(content, np.uint32, 3, 80).tolist() == [9, 5, 8]


def test_an_item_of_floats_and_one_of_bytes():
    assert plain_item(np.zeros((2, 3), np.float32)).shape == (2, 3)
    assert int8_item(np.array([[1.0, -2.0]]), (2, 1)).content[:2] == np.array([64, -127], np.int8).tobytes()


@pytest.mark.parametrize("norm_place", ["before", "after"])
@pytest.mark.parametrize("form", ["npz", "bin"])
def test_marian_writes_what_we_write(tmp_path, form, norm_place):
    pymarian = pytest.importorskip("pymarian", reason="pip install pymarian")
    made = settings(norm_place)
    model = sharp_model(made)
    about, path = marian_settings(made, V, MAX_LEN), tmp_path / f"model.{form}"
    theirs = marian_arrays(numbers(model), made, codes_of(made), range(EOS))
    if form == "npz":
        write_npz(path, theirs, about)
    else:
        write_bin(path, {name: plain_item(array) for name, array in theirs.items()}, about)
    words = tmp_path / "words.yml"
    write_vocabulary(words, ["<pad>", "<unk>", "<s>", "</s>", *(f"_{i}" for i in range(EOS + 1, V))])
    translator = pymarian.Translator(f"-m {path} -v {words} {words} --cpu-threads 1 -b 1 --quiet --allow-unk")
    sources = [[4 + (7 * i + n) % (V - 4) for i in range(n)] for n in (1, 5, 9, 12)]
    greedy = DecodeSettings(method="greedy", beam=1, max_ratio=3.0, max_extra=0)
    found = select_engine(model, "float32").search_batch(sources, greedy)
    expected = [[f"_{i}" for i in hypotheses[0].ids if i != EOS] for hypotheses in found]
    assert len({word for line in expected for word in line}) > 2, "a model that says always the same shows nothing"
    said = [translator.translate([" ".join(f"_{i}" for i in source)])[0].split() for source in sources]
    assert said == expected


def test_firefox_gets_a_model(tmp_path):
    write_firefox_model(tmp_path / "model.bin", settings("after"), V, token=9)
    found = {name: rest for name, *rest in read_bin((tmp_path / "model.bin").read_bytes())}
    assert found["Wemb"][1] == (V, D)
    assert np.frombuffer(found["decoder_ff_logit_out_b"][2], np.float32, V).argmax() == 9

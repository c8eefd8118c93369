"""Models that write, as they come from a folder: what they foresee, and what they are not for."""

import pytest
import torch

import regard
from regard.batch import EOS, make_batch
from regard.checkpoint import Checkpoint, save_model
from regard.config import DataSettings, DecodeSettings, ModelSettings, PartSettings, Settings, TextSettings
from regard.decode.perplexity import foresee_documents, foresee_running
from regard.decode.writer import Writer
from tests.decode.writers import TOKENIZER, V, make_model, make_writer

TEXT = "ab cd\nfed cab a\nbad fed\n"


def gains(model, ids, said):
    """Gives the log-probabilities of what is said after BOS and each of some ids."""
    with torch.inference_mode():
        return model(make_batch([[]], [ids]))[0, : len(said)].log_softmax(-1)[range(len(said)), said]


@pytest.mark.parametrize("width", [2, 7, 24, 30])
@pytest.mark.parametrize("batch_tokens", [20, 1000])
def test_every_piece_of_a_running_text_counts_once(width, batch_tokens):
    model, ids = make_model(), TOKENIZER.encode(TEXT, "tgt")
    total, n = 0.0, 0
    for place in range(len(ids)):
        window = max(0, (place - 1) // (width - 1)) * (width - 1)
        total -= float(gains(model, ids[window:place], ids[window : place + 1])[-1])
        n += 1
    found = foresee_running(model, ids, width, batch_tokens)
    assert found.n_pieces == n == len(TEXT)
    torch.testing.assert_close(found.loss, total / n, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.perplexity, float(torch.tensor(found.loss, dtype=torch.float64).exp()))


def test_one_piece_is_foreseen_from_none():
    model = make_model()
    found = foresee_running(model, [5], 4, 100)
    torch.testing.assert_close(found.loss, -float(gains(model, [], [5])[0]), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="2 pieces or more and a text 1, got 1 and 5"):
        foresee_running(model, [4] * 5, 1, 100)


@pytest.mark.parametrize("batch_tokens", [1, 1000])
def test_documents_are_foreseen_each_by_itself_with_its_end(batch_tokens):
    model, documents = make_model(), [[4, 5, 6], [], [7], [8, 9, 10], [6]]
    total = -sum(float(gains(model, each, [*each, EOS]).sum()) for each in documents)
    found = foresee_documents(model, documents, batch_tokens)
    assert found.n_pieces == 13
    torch.testing.assert_close(found.loss, total / 13, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="1 document or more, got 0"):
        foresee_documents(model, [], batch_tokens)


def test_a_writer_foresees_as_it_has_learned():
    running, documents = make_writer(max_len=5), make_writer(max_len=5, form="documents")
    ids = TOKENIZER.encode("abcdefab", "tgt")
    assert running.foresee("abcd", "efab") == foresee_running(running.model, ids, 5, 8192)
    assert documents.foresee("abcd", "efab") == foresee_documents(documents.model, [ids[:4], ids[4:]], 8192)


def save(folder, position, text=TextSettings(kind="characters", max_len=9), **data):
    sizes = {"n_encoder_layers": 0, "n_decoder_layers": 2, "d_model": 12, "n_heads": 2, "d_ff": 9}
    model = ModelSettings(family="decoder", tie="none", position=position, **sizes)
    data = DataSettings(**{"form": "text", "src_lang": "en", "tgt_lang": "en"} | data)
    made = Settings(data=data, text=text, model=model, decode=DecodeSettings(method="sample", max_extra=12))
    save_model(folder, Checkpoint(make_model(position).float(), TOKENIZER, made), {})
    return folder


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_folder_is_opened_ready_to_write(tmp_path, precision):
    writer = regard.load(save(tmp_path / "model", PartSettings("rotary")), precision)
    assert isinstance(writer, Writer) and isinstance(writer, regard.Writer)
    assert len("".join(writer.generate("ab"))) <= 12
    assert writer.form == "text" and writer.foresee("abc").n_pieces == 3


@pytest.mark.parametrize(
    ("position", "room"),
    [
        (PartSettings("rotary"), 9),
        (PartSettings("alibi"), None),
        (PartSettings("learned", {"max_len": 7}), 7),
        (PartSettings("learned", {"max_len": 20}), 9),
    ],
    ids=str,
)
def test_how_far_back_a_model_looks(tmp_path, position, room):
    writer = regard.load(save(tmp_path / "model", position))
    assert writer.room == room
    list(writer.generate("abcdef abcdef", DecodeSettings(method="greedy", max_extra=30)))


def test_a_search_keeps_to_the_room_and_a_beam_comes_whole():
    writer = make_writer(room=8, method="beam", beam=3, max_extra=50)
    written = writer.write("abc")
    assert written.text.startswith("abc") and len(written.tokens) <= 8
    assert list(writer.generate("abc")) == [written.text[3:]]
    assert len(make_writer(room=None, method="greedy", max_extra=40).write("a").tokens) <= 41
    with pytest.raises(ValueError, match="shorter than the 8 pieces that the model looks back at, got 8"):
        writer.write("abcdefab")


def test_what_a_writer_is_not_for():
    writer = make_writer()
    with pytest.raises(ValueError, match="writes text and translates none: use regard generate"):
        writer.translate("ab")
    with pytest.raises(ValueError, match="characters that the model knows, got 'x'"):
        next(writer.generate("abx"))
    assert V == 4 + 8

"""Writing on: what is streamed is what a search finds, chance is the seed's, and the past fades in half windows.

Models that write, as they come from a folder: what they foresee, and what they are not for.
"""

from dataclasses import replace

import pytest
import torch

import regard
from regard.batch import make_batch
from regard.checkpoint.weights import Checkpoint, save_model
from regard.config import DataSettings, DecodeSettings, ModelSettings, PartSettings, Settings, TextSettings
from regard.data.tokenizer import Tokenizer, train_characters
from regard.data.vocabulary import train_tokenizer
from regard.model.seq2seq import allowed_log_probs
from regard.padding import BOS, EOS
from regard.pipeline import load_generator, load_translator
from regard.pipeline.generator import Generator, as_text, generate_tokens
from regard.search.scoring import document_likelihood, text_likelihood
from tests.pipeline.writers import TOKENIZER, V, make_model, make_writer

METHODS = {
    "greedy": {"method": "greedy"},
    "sample": {"method": "sample", "seed": 5},
    "cool": {"method": "sample", "temperature": 0.7, "top_k": 3, "seed": 6},
    "nucleus": {"method": "sample", "top_p": 0.8, "seed": 7},
}


def next_log_probs(model, ids):
    """Gives what the model thinks of each token after BOS and these ids, all read at once."""
    with torch.inference_mode():
        return allowed_log_probs(model(make_batch([[]], [ids]))[0, -1:], None)[0]


@pytest.mark.parametrize("position", ["rotary", "learned"])
@pytest.mark.parametrize("changes", METHODS.values(), ids=METHODS)
def test_what_is_streamed_is_what_is_searched(changes, position):
    writer = make_writer(make_model(position), **changes)
    found = writer.search(writer.encode("ab\n"), writer.settings)[0]
    said = list(writer.tokens(writer.encode("ab\n"), writer.settings))
    assert [token for token, _ in said if token != EOS] == found.ids[3:]
    torch.testing.assert_close([gain for _, gain in said], found.token_log_probs[3:], rtol=1e-9, atol=1e-9)
    assert "".join(writer.stream("ab\n")) == writer.generate("ab\n").text[3:]


def test_samples_are_those_of_the_search_whatever_their_rank():
    writer = make_writer(n_best=3, seed=2)
    found = {tuple(each.ids[1:]) for each in writer.search(writer.encode("a"), writer.settings)}
    said = [tuple(t for t, _ in writer.tokens(writer.encode("a"), writer.settings, n) if t != EOS) for n in range(3)]
    assert set(said) == found and len(found) == 3


def test_the_seed_decides():
    writer = make_writer(max_extra=20)
    once, again, other = ("".join(writer.stream("a", replace(writer.settings, seed=seed))) for seed in (3, 3, 4))
    assert once == again != other


def test_greedy_is_the_likeliest_at_each_step():
    writer = make_writer(method="greedy", max_extra=8)
    ids = writer.encode("fa")
    for token, gain in writer.tokens(ids, writer.settings):
        expected = next_log_probs(writer.model, ids)
        assert token == int(expected.argmax())
        torch.testing.assert_close(gain, float(expected.max()), rtol=1e-9, atol=1e-9)
        ids = [*ids, token]


@pytest.mark.parametrize("position", ["rotary", PartSettings("learned", {"max_len": 6})], ids=["rotary", "learned"])
def test_where_there_is_no_more_room_the_newest_half_is_read_anew(position):
    room, prompt = 6, TOKENIZER.encode("abc", "tgt")
    model, settings = make_model(position), DecodeSettings(method="greedy", max_extra=15)
    with torch.no_grad():
        model.output.table.weight[EOS] = 0.0  # so that it goes on
    seen, n = list(prompt), 0
    for token, gain in generate_tokens(model, prompt, settings, room):
        expected = next_log_probs(model, seen)
        torch.testing.assert_close(gain, float(expected.max()), rtol=1e-9, atol=1e-9)
        seen, n = [*seen, token], n + 1
        if len(seen) + 1 > room:  # with BOS
            seen = seen[-(room // 2) :]
    assert n == 15


def test_a_prompt_longer_than_the_room_is_read_from_its_newest_half_on():
    prompt = TOKENIZER.encode("abcdef abcdef", "tgt")
    (token, gain), *_ = generate_tokens(make_model(), prompt, DecodeSettings(method="greedy", max_extra=1), 6)
    expected = next_log_probs(make_model(), prompt[-3:])
    assert token == int(expected.argmax())
    torch.testing.assert_close(gain, float(expected.max()), rtol=1e-9, atol=1e-9)


def test_it_ends_where_the_model_does_or_when_enough_is_written():
    model = make_model()
    with torch.no_grad():
        model.output.table.weight[EOS] = 0.0
    writer = make_writer(model, method="greedy", max_extra=0)
    assert list(writer.stream("a")) == []
    writer = make_writer(model, max_extra=200, seed=1)
    said = [token for token, _ in writer.tokens([4], writer.settings)]
    assert (said[-1] == EOS) == (len(said) < 200) and EOS not in said[:-1]
    assert not {0, 1, BOS} & set(said)


def test_bytes_wait_for_the_character_they_make():
    tokenizer = Tokenizer((train_characters(["ab"], 300, byte_fallback=True),))
    ids = tokenizer.encode("a床é!", "tgt")
    assert list(as_text(tokenizer, [], ids)) == ["a", "床", "é", "!"]
    assert "".join(as_text(tokenizer, ids[:1], ids[1:3])) == "\N{REPLACEMENT CHARACTER}"
    assert list(as_text(tokenizer, ids, tokenizer.encode("b", "tgt"))) == ["b"]


def test_spaces_between_tokens_are_kept():
    text = "the cat sat on the mat and the dog sat on the cat"
    settings = TextSettings(kind="bpe", vocab_size=290)
    tokenizer = train_tokenizer([(text, text)] * 2, settings, lambda said: None, seed=0)
    ids = tokenizer.encode(text, "tgt")
    for cut in range(len(ids)):
        before = tokenizer.decode(ids[:cut])
        assert before + "".join(as_text(tokenizer, ids[:cut], ids[cut:])) == text


@pytest.mark.parametrize(
    ("changes", "room", "message"),
    [
        ({"method": "beam"}, 9, "unknown method of writing token by token 'beam'"),
        ({"max_extra": -1}, 9, "max_extra must be 0 or more tokens after the prompt, got -1"),
        ({}, 1, "must attend to 2 tokens or more, got 1"),
        ({"temperature": 0.0}, 9, "temperature must be above 0, got 0.0"),
        ({"top_p": 1.5}, 9, r"top_p must lie in \(0, 1\], got 1.5"),
    ],
)
def test_what_cannot_be_written(changes, room, message):
    settings = DecodeSettings(**{"method": "sample"} | changes)
    with pytest.raises(ValueError, match=message):
        next(generate_tokens(make_model(), [4], settings, room))
    with pytest.raises(ValueError, match="sample must lie in 0 … 0, one of n_best, got 1"):
        next(generate_tokens(make_model(), [4], DecodeSettings(method="greedy"), 9, sample=1))


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
    found = text_likelihood(model, ids, width, batch_tokens)
    assert found.n_tokens == n == len(TEXT)
    torch.testing.assert_close(found.loss, total / n, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.perplexity, float(torch.tensor(found.loss, dtype=torch.float64).exp()))


def test_one_piece_is_foreseen_from_none():
    model = make_model()
    found = text_likelihood(model, [5], 4, 100)
    torch.testing.assert_close(found.loss, -float(gains(model, [], [5])[0]), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="2 tokens or more and a text 1, got 1 and 5"):
        text_likelihood(model, [4] * 5, 1, 100)


@pytest.mark.parametrize("batch_tokens", [1, 1000])
def test_documents_are_foreseen_each_by_itself_with_its_end(batch_tokens):
    model, documents = make_model(), [[4, 5, 6], [], [7], [8, 9, 10], [6]]
    total = -sum(float(gains(model, each, [*each, EOS]).sum()) for each in documents)
    found = document_likelihood(model, documents, batch_tokens)
    assert found.n_tokens == 13
    torch.testing.assert_close(found.loss, total / 13, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="1 document or more, got 0"):
        document_likelihood(model, [], batch_tokens)


def test_a_writer_foresees_as_it_has_learned():
    running, documents = make_writer(max_len=5), make_writer(max_len=5, form="documents")
    ids = TOKENIZER.encode("abcdefab", "tgt")
    assert running.log_likelihood("abcd", "efab") == text_likelihood(running.model, ids, 5, 8192)
    assert documents.log_likelihood("abcd", "efab") == document_likelihood(documents.model, [ids[:4], ids[4:]], 8192)


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
    assert isinstance(writer, Generator) and isinstance(writer, regard.Generator)
    assert len("".join(writer.stream("ab"))) <= 12
    assert writer.form == "text" and writer.log_likelihood("abc").n_tokens == 3


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
    assert writer.window == room
    list(writer.stream("abcdef abcdef", DecodeSettings(method="greedy", max_extra=30)))


def test_a_search_keeps_to_the_room_and_a_beam_comes_whole():
    writer = make_writer(window=8, method="beam", beam=3, max_extra=50)
    written = writer.generate("abc")
    assert written.text.startswith("abc") and len(written.tokens) <= 8
    assert list(writer.stream("abc")) == [written.text[3:]]
    assert len(make_writer(window=None, method="greedy", max_extra=40).generate("a").tokens) <= 41
    with pytest.raises(ValueError, match="shorter than the 8 tokens that the model attends to, got 8"):
        writer.generate("abcdefab")


def test_what_a_generator_is_not_for(tmp_path):
    writer, folder = make_writer(), save(tmp_path / "model", PartSettings("rotary"))
    with pytest.raises(ValueError, match="generates text and does not translate: use regard generate"):
        load_translator(folder)
    with pytest.raises(ValueError, match="translates and does not generate text: use regard translate"):
        load_generator("zh-en")
    assert load_generator(folder).generate("a").text.startswith("a")
    with pytest.raises(ValueError, match="characters that the model knows, got 'x'"):
        next(writer.stream("abx"))
    assert V == 4 + 8

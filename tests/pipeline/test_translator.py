"""Texts become translations: in their order, whole, and the same however they are batched."""

import io
from dataclasses import replace

import pytest
import sentencepiece
import torch

from regard.checkpoint.weights import Checkpoint
from regard.config import DataSettings, DecodeSettings, Settings, TextSettings
from regard.data.tokenizer import Tokenizer
from regard.engine import plain
from regard.engine.plain import PlainEngine
from regard.padding import length_sorted
from regard.pipeline import translator as room
from regard.pipeline.translator import Translator
from tests.search.models import Counting, Echo, make_model

ALPHABET = "abcdefghij .,!?。，！你好世界"
LINES = ["abc", "", "hello", "   ", "a", "jihgfedcba", "bad cab", "\t", "face", "。", "dead bee"]


def character_tokenizer():
    """Makes a tokenizer whose pieces are characters."""
    model = io.BytesIO()
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    options = {"model_type": "char", "vocab_size": 30, "hard_vocab_limit": False, "character_coverage": 1.0}
    texts = iter([ALPHABET, "hello"])
    plain = {"normalization_rule_name": "identity", "add_dummy_prefix": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=texts, model_writer=model, **ids, **options, **plain)
    return Tokenizer((model.getvalue(),))


TOKENIZER = character_tokenizer()
V = TOKENIZER.vocab_size("tgt")


def make_translator(model=None, tgt_lang="en", max_len=30, **changes):
    settings = DecodeSettings(**({"method": "greedy", "batch_tokens": 20} | changes))
    return Translator(PlainEngine(model or Echo(V)), TOKENIZER, settings, "zh", tgt_lang, max_len)


def small_model():
    """Makes a model of the family whose steps cost less."""
    return make_model("recurrent", vocab_size=V)


def test_translations_come_in_the_order_of_the_texts():
    found = make_translator().translate(LINES)
    assert [each.text for each in found] == [" ".join(line.split()) for line in LINES]
    assert found[2].tokens == found[2].source_tokens == list("hello")
    assert all(each.score < 0 for each in found if each.tokens)


def test_one_text_is_a_list_of_one():
    (found,) = make_translator().translate("abc")
    assert found.text == "abc"


def test_empty_lines_stay_empty_without_the_model():
    model = Counting(Echo(V))
    found = make_translator(model).translate(["", "  ", "\t"])
    assert [(each.text, each.tokens, each.alternatives) for each in found] == [("", [], [])] * 3
    assert model.rows == []


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_batches_and_windows_do_not_matter(method, monkeypatch):
    translator = make_translator(small_model(), method=method, max_ratio=0.0, max_extra=4)
    expected = [translator.translate([line])[0] for line in LINES]
    for batch_tokens, window in ((10_000, 3), (25, 6)):
        monkeypatch.setattr(room, "WINDOW", window)
        settings = replace(translator.settings, batch_tokens=batch_tokens)
        for found in (translator.translate(LINES, settings), list(translator.stream(iter(LINES), settings))):
            assert [each.text for each in found] == [each.text for each in expected]
            torch.testing.assert_close([each.score for each in found], [each.score for each in expected])


def test_a_stream_reads_a_window_at_a_time_and_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr(room, "WINDOW", 4)
    read, ticks = [], []

    def lines():
        for line in LINES * 3:
            read.append(line)
            yield line

    stream = make_translator().stream(lines(), tick=ticks.append)
    assert next(stream).text == "abc"
    assert len(read) == 4
    assert sum(ticks) == 4
    assert 1 + sum(1 for _ in stream) == sum(ticks) == len(LINES) * 3


def test_batches_hold_like_lengths_within_their_budget():
    lengths = [3, 11, 5, 2, 7, 3, 30, 4]
    batches = list(length_sorted(lengths, 12))
    assert sorted(i for batch in batches for i in batch) == list(range(8))
    assert [[lengths[i] for i in batch] for batch in batches] == [[30], [11], [7], [5, 4], [3, 3, 2]]


def test_a_batch_without_tokens_is_refused():
    with pytest.raises(ValueError, match="batch_tokens must be 1 or more, got 0"):
        make_translator(batch_tokens=0).translate("abc")


PARTS = ["abc def.", "bad, cab,", "dead, bee!", "你好。", "世界，你好，", "世界，你好，世界"]


@pytest.mark.parametrize(("tgt_lang", "separator"), [("en", " "), ("zh-CN", ""), ("zho_Hans", ""), ("ja", "")])
@pytest.mark.parametrize("split", ["sentences", "overlong"])
def test_a_text_that_is_too_long_is_translated_in_parts(tgt_lang, separator, split, monkeypatch):
    monkeypatch.setattr(plain, "LEAST_ROWS", 1)  # no row is there but for a part
    translator = make_translator(Counting(Echo(V)), tgt_lang, max_len=10, batch_tokens=100, split=split)
    (found,) = translator.translate("abc def. bad, cab, dead, bee! 你好。世界，你好，世界，你好，世界")
    assert found.text == separator.join(PARTS)
    assert max(translator.model.rows) == len(PARTS)
    assert found.tokens == [character for part in PARTS for character in part.replace(" ", "▁")]
    assert found.warning is None


def test_a_text_is_translated_sentence_by_sentence_unless_it_is_told_otherwise(monkeypatch):
    monkeypatch.setattr(plain, "LEAST_ROWS", 1)
    model, text = Counting(Echo(V)), "abc! de! fa! ab! ca"
    translator = make_translator(model, batch_tokens=100)
    assert translator.translate(text)[0].text == text
    assert max(model.rows) == 5
    model.rows.clear()
    assert translator.translate(text, replace(translator.settings, split="overlong"))[0].text == text
    assert model.rows == [1] * 20, "one sentence, a step for each character and the end"


@pytest.mark.parametrize(
    ("tgt_lang", "expected"),
    [("en", "abc.  de!\n\n  fa\r\nbad. \ta? 你。 好"), ("zh", "abc.de!\n\n  fa\r\nbad.a?你。好")],
)
def test_line_breaks_are_kept_and_spaces_where_the_language_has_them(tgt_lang, expected):
    (found,) = make_translator(tgt_lang=tgt_lang).translate("abc.  de!\n\n  fa\r\nbad.\ta? 你。好")
    assert found.text == expected.replace(" \t", " ")
    assert make_translator().translate("\n\nabc \n")[0].text == "\n\nabc \n"
    assert make_translator().translate(" abc  ")[0].text == "abc"


def test_a_line_without_a_place_to_cut_is_cut_anyway_and_says_so(monkeypatch):
    monkeypatch.setattr(room, "WINDOW", 2)
    found = make_translator(max_len=10).translate(
        ["abc", "abc. def. gha. bad", "abcdefghij" * 3, "ab cd ef gh ij", "你" * 14]
    )
    assert [each.text for each in found[:4]] == ["abc", "abc. def. gha. bad", "abcdefghij" * 3, "ab cd ef gh ij"]
    assert found[4].text == "你" * 7 + " " + "你" * 7
    assert [each.warning for each in found[:2]] == [None, None]
    assert "at 2 places" in found[2].warning and "reads 10 tokens" in found[2].warning
    assert "at 1 place," in found[3].warning


def test_alternatives_are_all_that_were_found():
    translator = make_translator(small_model(), method="beam", beam=4, n_best=3, max_extra=5)
    for found in translator.translate(["abc", "bad cab"]):
        scores = [each.score for each in found.alternatives]
        assert len(scores) == 3
        assert (found.text, found.score) == (found.alternatives[0].text, found.alternatives[0].score)
        assert scores == sorted(scores, reverse=True)


def test_the_score_of_parts_is_that_of_one_hypothesis():
    translator = make_translator(small_model(), max_len=4, max_extra=3, length_penalty=0.5)
    (a,), (b,), (joint,) = (translator.translate(text) for text in ("abc.", "def.", "abc. def."))
    # the log-probabilities add up, and so do the lengths: EOS counts where it was said
    lengths = [len(each.tokens) + (len(each.tokens) < 2 * 5 + 3) for each in (a, b)]
    log_prob = a.score * lengths[0] ** 0.5 + b.score * lengths[1] ** 0.5
    torch.testing.assert_close(joint.score, log_prob / sum(lengths) ** 0.5)


def test_translations_begin_with_the_prefix():
    translator = make_translator(small_model(), max_len=4, max_extra=3)
    for found in translator.translate(["abc", "de. ba."], prefix="hi"):
        assert found.text.startswith("hi")
    both, second = translator.translate(["de. ba."], prefix="hi")[0], translator.translate("ba.")[0]
    assert both.tokens[-len(second.tokens) :] == second.tokens, "the second part is free"


def test_dropout_rests_from_the_engine_on():
    model = make_model(vocab_size=V, dropout=0.5)
    expected = make_translator(model, max_ratio=0.0, max_extra=4).translate(LINES)
    translator = make_translator(model.train(), max_ratio=0.0, max_extra=4)
    assert translator.translate(LINES) == expected
    assert not any(module.training for module in model.modules())


def test_a_checkpoint_makes_a_translator():
    settings = Settings(
        data=DataSettings(src_lang="zh", tgt_lang="en"),
        text=TextSettings(max_len=7),
        decode=DecodeSettings(method="greedy", max_extra=9),
    )
    model = Echo(V)
    translator = Translator.from_checkpoint(Checkpoint(model, TOKENIZER, settings), PlainEngine(model))
    assert (translator.src_lang, translator.tgt_lang, translator.max_len) == ("zh", "en", 7)
    assert translator.translate("abc. def.")[0].text == "abc. def."


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("wrong", [None, 5, b"abc", ["abc"]])
def test_what_is_no_text_is_refused_by_its_place(wrong):
    name = type(wrong).__name__
    with pytest.raises(ValueError, match=f"a text must be a string, got {name} as number 1: leave it out"):
        make_translator().translate(["abc", wrong])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("wrong", [None, 5, b"abc"])
def test_what_is_neither_a_text_nor_several_is_refused(wrong):
    with pytest.raises(ValueError, match=f"a list of strings, got {type(wrong).__name__}"):
        make_translator().translate(wrong)

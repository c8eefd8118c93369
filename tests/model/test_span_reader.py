"""The reader of spans: padding and company change nothing, and only the text can answer."""

from dataclasses import replace

import pytest
import torch

from regard.config import PartSettings
from regard.decode.answers import make_reading
from regard.model.masked_words import MaskedWords
from regard.text.passages import cut_passage, make_passage

from ..readers import MODEL, WINDOWS, questions, small_reader

SCHEMES = ["none", "sinusoidal", "learned", "rotary", "t5", "alibi", "shaw"]


def windows(reader):
    made = [make_passage(question, reader.tokenizer, WINDOWS) for question in questions()]
    return [window for n, passage in enumerate(made) for window in cut_passage(passage, n, WINDOWS)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_padding_and_company_change_nothing(scheme):
    reader = small_reader(model=replace(MODEL, position=PartSettings(scheme)))
    cut = windows(reader)
    assert len({len(window.ids) for window in cut}) > 1, "windows differ in length"
    with torch.no_grad():
        together = reader.model(make_reading(cut, width=61))
        turned = reader.model(make_reading(cut[::-1]))
        for n, window in enumerate(cut):
            alone = reader.model(make_reading([window], width=len(window.ids) + 1))
            for one, many, back in zip(alone, together, turned, strict=True):
                torch.testing.assert_close(many[n, : len(one[0])], one[0])
                torch.testing.assert_close(back[len(cut) - 1 - n, : len(one[0])], one[0])


def test_an_answer_begins_and_ends_in_the_text_or_at_the_first_token():
    reader = small_reader()
    window = windows(reader)[0]
    for logits in reader.model(make_reading([window])):
        open_ = torch.isfinite(logits[0]).nonzero()[:, 0].tolist()
        assert open_ == [0, *range(window.offset, len(window.ids))]


def test_the_question_decides_and_marks_are_read():
    reader = small_reader()
    window = windows(reader)[0]
    other = replace(window, ids=[window.ids[0], window.ids[2], window.ids[1], *window.ids[3:]])
    unmarked = replace(window, marks=[min(mark, 1) for mark in window.marks])
    assert unmarked.marks != window.marks
    with torch.no_grad():
        start, moved, plain = (reader.model(make_reading([each]))[0][0, 0] for each in (window, other, unmarked))
    assert start != moved
    assert start != plain


def test_hidden_words_are_told_by_the_readers_own_table():
    reader = small_reader()
    cut = windows(reader)
    reading = make_reading(cut)
    hidden = torch.zeros_like(reading.marks, dtype=torch.bool)
    hidden[0, 3] = hidden[1, 2] = True
    model = MaskedWords(reader.model).double()
    logits = model(reading, hidden)
    assert logits.shape == (2, reader.tokenizer.vocab_size("src"))
    vectors = model.to_word(reader.model.read(reading)[1, 2])
    torch.testing.assert_close(logits[1], reader.model.words.table.weight @ vectors)

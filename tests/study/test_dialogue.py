"""Dialogues: the answer is the right one, and an orbit hides it from who lacks turn or speaker."""

import random
from collections import Counter

import pytest
import torch
from torch.testing import assert_close

from regard.study.dialogue import (
    AXES,
    COLOURS,
    ENCODINGS,
    LONGEST,
    PEOPLE,
    SETTINGS,
    WORDS,
    Dialogue,
    encode,
    make_dialogue,
    make_task,
    orbit,
)
from regard.study.task import coordinates, make_model, oracle_accuracy, parse_encoding, read

# Bob says red in turn 4 and pink in turn 1; the transcript has the later line first.
TALK = Dialogue(
    lines=("i like red", "blue please", "my colour is green", "i like pink", "gold please", "teal please"),
    colours=("red", "blue", "green", "pink", "gold", "teal"),
    turns=(4, 0, 2, 1, 5, 3),
    speakers=(1, 0, 2, 1, 0, 2),
    asker=1,
    which="first",
)


def asked(asker, which):
    return Dialogue(TALK.lines, TALK.colours, TALK.turns, TALK.speakers, asker, which).answer


def test_the_answer_is_what_the_person_said_first_or_last():
    assert TALK.answer == "pink"
    assert [asked(who, which) for who in range(3) for which in ("first", "last")] == [
        "blue",
        "gold",
        "pink",
        "red",
        "green",
        "teal",
    ]


def test_words_carry_turn_and_speaker_and_the_question_comes_last():
    words = TALK.words()
    assert words[:3] == [("i", 4, 1), ("like", 4, 1), ("red", 4, 1)]
    assert " ".join(word for word, *_ in words[-5:]) == "what did i say first"
    assert {(turn, speaker) for _, turn, speaker in words[-5:]} == {(6, 1)}
    examples = encode([TALK])
    length = int(examples.lengths[0])
    assert length == len(words)
    assert [WORDS[i] for i in examples.tokens[0, :length].tolist()] == [word for word, *_ in words]
    assert not examples.tokens[0, length:].any() and WORDS[0] == "<pad>"
    assert examples.positions[0, :, 0].tolist() == list(range(LONGEST))
    assert examples.positions[0, :length, 1:].tolist() == [[turn, speaker] for _, turn, speaker in words]
    assert COLOURS[int(examples.labels[0])] == "pink"


@pytest.mark.parametrize("seed", range(5))
def test_an_orbit_has_one_transcript_and_every_colour_as_its_answer(seed):
    talk = make_dialogue(random.Random(seed))
    found = list(orbit(talk))
    assert len(set(found)) == len(found) == 36 and talk in found
    assert len({tuple(word for word, *_ in each.words()) for each in found}) == 1
    assert Counter(each.answer for each in found) == dict.fromkeys(talk.colours, 6)
    for each in found:
        assert sorted(each.turns) == list(range(6)) and Counter(each.speakers) == dict.fromkeys(range(3), 2)


def test_how_much_each_way_can_know():
    task = make_task(n_train=4, n_orbits=5)
    shares = [
        oracle_accuracy(task.test, coordinates(parse_encoding(each, AXES), AXES, task.test.positions))
        for each in ENCODINGS
    ]
    assert shares == pytest.approx([1.0, 1 / 2, 1 / 3, 1 / 6, 1 / 6])


def test_talks_are_balanced_and_drawn_by_their_seed():
    draws = random.Random(0)
    talks = [make_dialogue(draws) for _ in range(3000)]
    answers = Counter(talk.answer for talk in talks)
    assert len(answers) == 12 and min(answers.values()) > 190 and max(answers.values()) < 320
    turns = Counter(talk.turns[talk.colours.index(talk.answer)] for talk in talks if talk.which == "first")
    share = turns[0] / sum(turns.values())
    assert share == pytest.approx(1 / 3, abs=0.05)  # what a guess by turn alone can hope for
    assert all(sorted(Counter(talk.speakers).values()) == [2] * len(PEOPLE) for talk in talks)
    assert torch.equal(make_task(8, 1, seed=4).train.tokens, make_task(8, 1, seed=4).train.tokens)
    assert not torch.equal(make_task(8, 1, seed=4).train.tokens, make_task(8, 1, seed=5).train.tokens)


def test_padding_and_an_orbit_are_nothing_to_a_model_that_is_told_the_index_alone():
    task = make_task(n_train=4, n_orbits=1)
    told = parse_encoding("sinusoidal", AXES)
    model = make_model(task, told, SETTINGS, 0).double().eval()
    with torch.no_grad():
        logits = read(model, task, told, task.test)
        longer = torch.nn.functional.pad(task.test.tokens, (0, 3))
        places = torch.arange(LONGEST + 3)[None]
        assert_close(model(longer, places, task.test.lengths), logits)
        assert_close(logits, logits[:1].expand_as(logits))
        told = parse_encoding("turns", AXES)
        turned = read(make_model(task, told, SETTINGS, 0).double().eval(), task, told, task.test)
    assert (turned - turned[:1])[1:].abs().amax(dim=-1).min() > 1e-6


def test_the_speakers_have_codes_of_their_own():
    task = make_task(n_train=20, n_orbits=1)
    model = make_model(task, parse_encoding("turns", AXES), SETTINGS, 0)
    assert len(model.embedding.position.speakers) == 3


def test_nothing_to_make_is_refused():
    with pytest.raises(ValueError, match="got 0 and 30"):
        make_task(n_train=0)

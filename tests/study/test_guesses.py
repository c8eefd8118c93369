"""Answers without a model: each takes what its rule says."""

import os
import subprocess
import sys

import pytest

from regard.study.guesses import GUESSES, first_sentence, overlap_sentence, overlap_span, random_span, split_units
from regard.text.questions import make_question

from ..readers import questions

# Questions whose windows are often worth the same, by words that are in another order in every process.
TIES = """
import random
from regard.study.guesses import overlap_sentence, overlap_span
from regard.text.questions import make_question
chance = random.Random(7)
words = [f"w{number}" for number in range(40)]
for _ in range(100):
    context = " ".join(chance.choice(words) + chance.choice(["", "", "", "."]) for _ in range(90)) + "."
    question = make_question("a", " ".join(chance.sample(words, 20)), context, [])
    print(overlap_span(question), overlap_sentence(question), sep="|")
"""


def asked(text, context):
    return make_question("a", text, context, [])


def test_the_sliding_window_takes_what_stands_among_the_questions_words():
    context = "Anna lives in Oslo. Ben works as a baker in Rome. Clara sings."
    assert overlap_span(asked("Where does Anna live in?", context)) in {"lives", "Oslo"}
    assert overlap_span(asked("What does Ben works as a?", context)) == "baker in Rome"
    assert overlap_span(asked("西安的古称是什么？", "北京很大。西安的古称是镐京。")) == "镐京"


def test_a_rare_word_counts_more_than_a_frequent_one():
    context = "The red cat sat. The red cat ran. The red cat hid. A bird sang."
    assert overlap_sentence(asked("Did the red bird?", context)) == "A bird sang."  # log 2 is more than 2 log(4/3)
    assert overlap_span(asked("Red bird?", context)) in {"A", "sang"}
    assert first_sentence(asked("Where?", context)) == "The red cat sat."


def test_a_context_of_the_questions_own_words_is_its_own_answer():
    assert overlap_span(asked("Anna sings.", "Anna sings.")) == "Anna sings."


def test_ties_fall_the_same_way_in_every_process():
    told = [
        subprocess.run(
            [sys.executable, "-c", TIES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0].count("\n") == 100
    assert told[0] == told[1]


def test_chance_depends_on_the_question_and_the_seed_alone():
    (question, other, *_) = questions()
    drawn = {random_span(question, seed) for seed in range(20)}
    assert len(drawn) > 5
    assert random_span(question, 3) == random_span(question, 3)
    assert all(1 <= len([unit for unit in split_units(span) if unit.word]) <= 8 for span in drawn)
    assert random_span(other) != random_span(question)


@pytest.mark.parametrize("name", GUESSES)
@pytest.mark.parametrize("language", ["zh", "en"])
def test_every_guess_is_a_stretch_of_the_text(name, language):
    for question in [*questions(language), asked("", questions(language)[0].context)]:
        guess = GUESSES[name](question)
        assert guess
        assert guess in question.context

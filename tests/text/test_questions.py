"""Questions are read as they stand, and what is wrong in a file is named with its line."""

import json
import lzma

import pytest

from regard.text.facts import FACTS, make_facts
from regard.text.questions import Answer, make_question, read_questions, split_questions

ROW = {"id": "a", "context": "Anna lives in Oslo.", "question": "Where?", "answers": [{"text": "Oslo", "start": 14}]}


def written(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def test_lines_become_questions_packed_or_not(tmp_path):
    plain = written(tmp_path / "q.jsonl", ROW, "", {**ROW, "id": "b"})
    packed = tmp_path / "q.jsonl.xz"
    packed.write_bytes(lzma.compress(json.dumps(ROW).encode()))
    found = read_questions([plain, str(packed)])
    assert [question.id for question in found] == ["a", "b", "a"]
    assert found[0].answers == (Answer("Oslo", 14),)
    assert found[1].where == f"{plain}, line 3"
    assert (found[0].text, found[0].context) == ("Where?", "Anna lives in Oslo.")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {**ROW, "answers": [{"text": "Oslo", "start": 13}]},
            "'Oslo' must stand in its context from character 13.*' Osl'",
        ),
        ({**ROW, "answers": [{"text": "Oslo", "start": -5}]}, "character -5"),
        ({**ROW, "answers": [{"text": " ", "start": 4}]}, "the answer ' '"),
        ({**ROW, "answers": []}, "1 answer or more, got none"),
        ({**ROW, "answers": [{"text": "Oslo"}]}, "each with a text and its start, got"),
        ({**ROW, "answers": [{"text": "Oslo", "start": "14"}]}, "each with a text and its start, got"),
        ({**ROW, "context": " ", "answers": [{"text": "x", "start": 0}]}, "a context must have words, got ' '"),
        ("[1", r"got '\[1'"),
        ({"question": "x"}, "an object with strings"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, row, said):
    path = written(tmp_path / "q.jsonl", ROW, row)
    with pytest.raises(ValueError, match=f"q.jsonl, line 2: .*{said}"):
        read_questions([path])


def test_a_question_may_be_empty_as_one_of_cmrc_is(tmp_path):
    (found,) = read_questions([written(tmp_path / "q.jsonl", {**ROW, "question": ""})])
    assert found.text == ""


def test_a_file_without_questions_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"got none in .*empty.jsonl"):
        read_questions([written(tmp_path / "empty.jsonl", "")])


def test_answers_keep_their_place_when_white_space_is_folded():
    context = "Oslo  is\tnorth.  Anna lives in\u200b  Oslo ."
    start = context.rindex("Oslo")
    found = make_question("a", "Where ?", context, [Answer("Oslo", start)])
    assert found.context == "Oslo is north. Anna lives in Oslo ."
    assert found.answers[0].start == found.context.rindex("Oslo")
    assert make_question("a", "Where ?", context, [Answer("Oslo", 0)]).answers[0].start == 0


def test_letters_that_compose_are_found_composed():
    found = make_question("a", "Wo?", "Er  wohnt in Ko\u0308ln.", [Answer("Ko\u0308ln", 13)])
    assert found.answers[0] == Answer("Köln", found.context.index("Köln"))


def test_no_context_is_on_both_sides_of_a_split():
    made = [make_question(str(n), "Who?", f"Text {n // 3}.", [Answer("Text", 0)]) for n in range(30)]
    taught, judged = split_questions(made, 0.2)
    assert len(taught) == 24
    assert not {each.context for each in taught} & {each.context for each in judged}
    assert sorted(taught + judged, key=made.index) == made
    with pytest.raises(ValueError, match="2 contexts or more, got 1"):
        split_questions(made[:3], 0.2)


def test_facts_ask_for_what_stands_there_once_for_each_person_and_relation():
    made = make_facts(50, seed=3)
    assert made == make_facts(50, seed=3) != make_facts(50, seed=4)
    for question in made:
        (answer,) = question.answers
        assert question.context[answer.start : answer.stop] == answer.text
        sentence = next(each for each in question.context.split(".") if each.strip().endswith(answer.text))
        name = sentence.split()[0]
        assert name in question.text
        kinds = [kind for kind, (_, asked, _) in enumerate(FACTS) if asked.format(name=name) == question.text]
        assert len(kinds) == 1
        assert answer.text in FACTS[kinds[0]][2].split()
        assert sum(word in FACTS[kinds[0]][2].split() for word in question.context.replace(".", "").split()) == 3

"""Dialogue with turn and speaker positions, as a page of the documentation."""

from regard.study.dialogue import COLOURS, N_TURNS, WORDS
from regard.study.page import Page
from regard.study.task import NOTHING
from regard.study.task_page import task_page
from regard.study.task_report import TaskStudy, percent, spread_percent

CLOSE = 0.05  # a share that counts as reached from here on


def talks_page(study: TaskStudy, command: str) -> Page:
    """Says what the study asked, did and found."""
    return task_page(
        study,
        command,
        title="Dialogue with turn and speaker positions",
        question="Three people name colours, and in the end one of them asks what they said first, or last. The "
        "transcript has neither names nor marks of turns, and its lines stand in any order. Do turn and speaker "
        "positions tell who said what, and when (S5.4, S9.4)?",
        method=method(),
        picture="Accuracy of each way to tell places, and two dialogues with the words that each head looked at",
        findings=findings(study),
    )


def method() -> list[str]:
    """Says what was done."""
    return [
        f"{N_TURNS} turns, two for each speaker in any order, each with a colour of {len(COLOURS)} in one of five "
        f"phrases; then the question, such as *what did i say last*. {len(WORDS)} words in all. `turns` gives "
        "a word the index at which it stands, its turn and its speaker; a coordinate that is called *nothing* is 0 "
        "everywhere.",
        "Validation and test are whole orbits: each transcript with 36 tables of places, in which every colour of the "
        "transcript is the answer equally often (`study/talks.py` has the proof). Guessing among all colours is right "
        f"in {percent(1 / len(COLOURS))}, among those that were named in {percent(1 / N_TURNS)}.",
    ]


def findings(study: TaskStudy) -> list[str]:
    """Says what the numbers mean."""
    said = []
    for row in study.rows:
        told = ", ".join(name for name in row.coordinates if name != NOTHING) or "nothing"
        short = row.bound - row.test.mean > CLOSE
        missed = ": what could be known is not learned in this time" if short else ""
        said.append(f"Told {told}: {spread_percent(row.test)} %, of at most {percent(row.bound)}{missed}.")
    return said

"""Made texts of simple facts, with questions on them: what a reader can learn in a minute."""

import random
from collections.abc import Sequence

from regard.text.questions import Answer, Question, make_question

NAMES = "Anna Ben Clara David Emma Felix Greta Henry Ida Jonas Klara Leo Maria Noah Olga Paul Rosa Simon Tara Victor"
PLACES = "Athens Berlin Cairo Delhi Geneva Havana Kyoto Lima Madrid Nairobi Oslo Prague Quito Rome Sofia Vienna"
COLOURS = "red green blue yellow white black orange purple brown grey pink silver"
JOBS = "baker doctor farmer gardener judge lawyer miller nurse painter pilot singer tailor teacher writer"
# What is said of somebody, how it is asked, and what it may be.
FACTS = (
    ("{name} lives in {value}.", "Where does {name} live?", PLACES),
    ("{name} likes the colour {value}.", "Which colour does {name} like?", COLOURS),
    ("{name} works as a {value}.", "What is {name} by profession?", JOBS),
)


def make_facts(n: int, seed: int, people: int = 3) -> list[Question]:
    """Draws texts that tell the place, the colour and the profession of some people, in any order, and asks for one.

    Every text has as many wrong answers of the same kind as there are other people, so that a reader has to find both
    the person and the relation.
    """
    chance = random.Random(seed)
    return [_made(chance, f"facts-{seed}-{number}", people) for number in range(n)]


def _made(chance: random.Random, id_: str, people: int) -> Question:
    names = chance.sample(NAMES.split(), people)
    facts = [(name, kind, value) for kind in range(len(FACTS)) for name, value in _drawn(chance, names, kind)]
    chance.shuffle(facts)
    sentences = [FACTS[kind][0].format(name=name, value=value) for name, kind, value in facts]
    asked = chance.randrange(len(facts))
    name, kind, value = facts[asked]
    start = sum(len(sentence) + 1 for sentence in sentences[:asked]) + sentences[asked].rindex(value)
    return make_question(id_, FACTS[kind][1].format(name=name), " ".join(sentences), [Answer(value, start)])


def _drawn(chance: random.Random, names: Sequence[str], kind: int) -> list[tuple[str, str]]:
    return list(zip(names, chance.sample(FACTS[kind][2].split(), len(names)), strict=True))

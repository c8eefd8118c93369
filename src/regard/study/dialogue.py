"""`study dialogue`.

Each of the three has two turns and names a colour in each, six different ones in all. The transcript has neither names
nor marks of turns, and its lines stand in any order: what was said when, and by whom, is a matter of places alone. In
the end one of the three asks for the first or the last colour of their own. For the test every transcript is read with
36 tables of places, an *orbit*: its turns moved round in 6 ways, forwards and backwards, with the three people in each
other's place. In a whole orbit
- each of the six colours is the answer equally often: who knows neither turn nor speaker is right once in 6;
- played backwards, the first colour of a person is the last: who knows the speaker alone is right once in 2;
- the three people's first colours are three different ones: who knows the turn alone is right once in 3.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from regard.config import ModelSettings
from regard.plot.style import Drawing, in_style
from regard.study.task import Examples, Task
from regard.study.task_report import INK, STRONGEST, Seen, TaskStudy, draw_bars, who_looks
from regard.study.trials import TaskSettings
from regard.train.examples import ExampleSettings

WAYS = ("turns", "turns:index,nothing,speaker", "turns:index,turn,nothing", "sinusoidal", "none")
FULL = TaskSettings(
    ModelSettings(
        n_encoder_layers=2, d_model=32, n_heads=2, d_ff=64, activation="gelu", norm_place="before", dropout=0.0
    ),
    ExampleSettings(epochs=7, batch=32, lr=4e-3),
    pool="mean",
)
QUICK = replace(FULL, learn=replace(FULL.learn, epochs=5))
SHOWN = (0, 500)  # test dialogues with their weights


AXES = ("index", "turn", "speaker")
PEOPLE = ("Ann", "Bob", "Cem")
COLOURS = ("red", "blue", "green", "black", "white", "grey", "brown", "pink", "gold", "teal", "plum", "lime")
LINES = ("my colour is {}", "i like {}", "{} please", "well {} then", "today it is {}")
QUESTION = "what did i say {}"
WHICH = {"first": 0, "last": -1}
N_TURNS = 2 * len(PEOPLE)
PAD = "<pad>"  # must come first
_OTHER = " ".join((*LINES, QUESTION)).replace("{}", " ").split()
WORDS = (PAD, *dict.fromkeys([*COLOURS, *WHICH, *_OTHER]))
LONGEST = N_TURNS * max(len(line.split()) for line in LINES) + len(QUESTION.split())


@dataclass(frozen=True)
class Talk:
    """One dialogue: its lines as they are stored, and for each of them when it was said, and by whom."""

    lines: tuple[str, ...]
    colours: tuple[str, ...]  # one in each line
    turns: tuple[int, ...]
    speakers: tuple[int, ...]
    asker: int  # one of PEOPLE
    which: str  # of WHICH

    @property
    def answer(self) -> str:
        """The colour that is asked for."""
        own = sorted(
            line for line in zip(self.turns, self.speakers, self.colours, strict=True) if line[1] == self.asker
        )
        return own[WHICH[self.which]][2]

    def words(self) -> list[tuple[str, int, int]]:
        """Gives each word with its turn and its speaker, the question last."""
        said = zip(self.lines, self.turns, self.speakers, strict=True)
        lines = [*said, (QUESTION.format(self.which), N_TURNS, self.asker)]
        return [(word, turn, speaker) for line, turn, speaker in lines for word in line.split()]


def talks_task(n_train: int = 5000, n_orbits: int = 30, seed: int = 0) -> Task:
    """Makes single dialogues to learn from, and whole orbits for validation and test."""
    if min(n_train, n_orbits) < 1:
        raise ValueError(f"n_train and n_orbits must be 1 or more, got {n_train} and {n_orbits}")
    draws = random.Random(seed)
    train = encode([make_talk(draws) for _ in range(n_train)])
    valid, test = (encode([talk for _ in range(n_orbits) for talk in orbit(make_talk(draws))]) for _ in range(2))
    return Task("dialogues", COLOURS, AXES, len(WORDS), train, valid, test)


def make_talk(draws: random.Random) -> Talk:
    """Draws a dialogue: its colours, its lines, the order in which the three speak, and that of the transcript."""
    colours = tuple(draws.sample(COLOURS, N_TURNS))
    turns = tuple(draws.sample(range(N_TURNS), N_TURNS))
    by_turn = draws.sample((*range(len(PEOPLE)), *range(len(PEOPLE))), N_TURNS)
    return Talk(
        lines=tuple(draws.choice(LINES).format(colour) for colour in colours),
        colours=colours,
        turns=turns,
        speakers=tuple(by_turn[turn] for turn in turns),
        asker=draws.randrange(len(PEOPLE)),
        which=draws.choice(tuple(WHICH)),
    )


def orbit(talk: Talk) -> Iterator[Talk]:
    """Gives the 36 dialogues with the same transcript and the same question."""
    by_turn = dict(zip(talk.turns, talk.speakers, strict=True))
    for later in range(N_TURNS):
        turns = tuple((turn + later) % N_TURNS for turn in talk.turns)
        for other in range(len(PEOPLE)):
            speakers = tuple((by_turn[turn] + other) % len(PEOPLE) for turn in turns)
            for said in (turns, tuple(N_TURNS - 1 - turn for turn in turns)):
                yield Talk(talk.lines, talk.colours, said, speakers, talk.asker, talk.which)


def encode(talks: list[Talk]) -> Examples:
    """Writes dialogues as ids with their places; padding stands behind, at the index where it stands."""
    ids, places = (
        torch.zeros(len(talks), LONGEST, dtype=torch.long),
        torch.zeros(len(talks), LONGEST, 3, dtype=torch.long),
    )
    places[:, :, 0] = torch.arange(LONGEST)
    lengths, number = [], {word: n for n, word in enumerate(WORDS)}
    for row, talk in enumerate(talks):
        words = talk.words()
        lengths.append(len(words))
        ids[row, : len(words)] = torch.tensor([number[word] for word, _, _ in words])
        places[row, : len(words), 1:] = torch.tensor([place for _, *place in words])
    labels = torch.tensor([COLOURS.index(talk.answer) for talk in talks])
    return Examples(ids, places, torch.tensor(lengths), labels)


COLUMNS = 36  # letters in the widest line, with the name of who says it


@in_style
def draw_talks(study: TaskStudy) -> Figure:
    """Draws the bars, then each test dialogue in the order of its turns, once for each head of the last layer."""
    H = study.seen[0].weights.shape[1]
    heights = [0.6 + 0.45 * len(study.rows), *[2.0] * len(study.seen)]
    figure = Drawing(figsize=(3.3 * H, sum(heights)))
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_bars(parts[0].subplots(), study)
    for part, seen in zip(parts[1:], study.seen, strict=True):
        for head, axes in enumerate(part.subplots(1, H, squeeze=False)[0]):
            draw_words(axes, seen, head)
            axes.set_title(f"last layer, head {head}", fontsize=8)
        part.suptitle(f"{who_looks(study)}; answer {seen.right}, the model says {seen.said}", fontsize=9)
    return figure


def draw_words(axes: Axes, seen: Seen, head: int) -> None:
    """Writes the turns one below another, each word on a ground as dark as its weight."""
    weights = seen.weights[-1, head]
    axes.set(xlim=(0, COLUMNS), ylim=(len(PEOPLE) * 2 + 0.7, -0.7))
    axes.axis("off")
    ends: dict[int, int] = {}
    for word, (_, turn, speaker), weight in zip(seen.tokens.tolist(), seen.places.tolist(), weights, strict=True):
        if turn not in ends:
            axes.text(0, turn, PEOPLE[speaker], fontsize=7, family="monospace", va="center", color="grey")
        at = ends.get(turn, 5)
        ground = to_rgba(INK, STRONGEST * float(weight / weights.amax()))
        box = {"facecolor": ground, "edgecolor": "none", "pad": 0.8}
        axes.text(at, turn, WORDS[word], fontsize=7, family="monospace", va="center", bbox=box)
        ends[turn] = at + len(WORDS[word]) + 1

"""`regard study dialogue`: do turn and speaker positions restore who said what, and when?

Each of the three has two turns and names a colour in each, six different ones in all. The transcript has neither names
nor marks of turns, and its lines stand in any order: what was said when, and by whom, is in the positions alone. In
the end one of the three asks for the first or the last colour of their own. For the test every transcript is read with
36 tables of positions, an *orbit*: its turns rotated in 6 ways, forwards and backwards, with the three people
rotated too. In a whole orbit
- each of the six colours is the answer equally often: a model that knows neither turn nor speaker is right once in 6;
- played backwards, the first colour of a person is the last: one that knows the speaker alone is right once in 2;
- the three people's first colours are three different ones: one that knows the turn alone is right once in 3.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from regard.plot.style import in_style, new_figure, rgb
from regard.study.task import SMALL_MODEL, Examples, Task, TaskSettings
from regard.study.trials import (
    INK,
    STRONGEST,
    ShownExample,
    TaskStudy,
    accuracy_tables,
    attention_title,
    draw_bars,
    run_task,
)
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.train.examples import ExampleSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENCODINGS = ("turns", "turns:index,nothing,speaker", "turns:index,turn,nothing", "sinusoidal", "none")
SETTINGS = TaskSettings(
    SMALL_MODEL,
    ExampleSettings(epochs=7, batch=32, lr=4e-3),
    pool="mean",
)
QUICK = replace(SETTINGS, learn=replace(SETTINGS.learn, epochs=5))
SHOWN = (0, 500)  # test dialogues drawn with the attention over them


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
class Dialogue:
    """One dialogue: its lines in the order of the transcript, each with its turn and its speaker."""

    lines: tuple[str, ...]
    colours: tuple[str, ...]  # one in each line
    turns: tuple[int, ...]
    speakers: tuple[int, ...]
    asker: int  # one of PEOPLE
    which: str  # of WHICH

    @property
    def answer(self) -> str:
        """Return the colour that is asked for."""
        own = sorted(
            line for line in zip(self.turns, self.speakers, self.colours, strict=True) if line[1] == self.asker
        )
        return own[WHICH[self.which]][2]

    def words(self) -> list[tuple[str, int, int]]:
        """Return each word with its turn and its speaker, the question last."""
        spoken = zip(self.lines, self.turns, self.speakers, strict=True)
        lines = [*spoken, (QUESTION.format(self.which), N_TURNS, self.asker)]
        return [(word, turn, speaker) for line, turn, speaker in lines for word in line.split()]


def make_task(n_train: int = 5000, n_orbits: int = 30, seed: int = 0) -> Task:
    """Make single dialogues for training, and whole orbits for validation and test."""
    if min(n_train, n_orbits) < 1:
        raise ValueError(f"n_train and n_orbits must be 1 or more, got {n_train} and {n_orbits}")
    draws = random.Random(seed)
    train = encode([make_dialogue(draws) for _ in range(n_train)])
    valid, test = (
        encode([dialogue for _ in range(n_orbits) for dialogue in orbit(make_dialogue(draws))]) for _ in range(2)
    )
    return Task("dialogues", COLOURS, AXES, len(WORDS), train, valid, test)


def make_dialogue(draws: random.Random) -> Dialogue:
    """Draw a dialogue: its colours, its lines, the order in which the three speak, and that of the transcript."""
    colours = tuple(draws.sample(COLOURS, N_TURNS))
    turns = tuple(draws.sample(range(N_TURNS), N_TURNS))
    by_turn = draws.sample((*range(len(PEOPLE)), *range(len(PEOPLE))), N_TURNS)
    return Dialogue(
        lines=tuple(draws.choice(LINES).format(colour) for colour in colours),
        colours=colours,
        turns=turns,
        speakers=tuple(by_turn[turn] for turn in turns),
        asker=draws.randrange(len(PEOPLE)),
        which=draws.choice(tuple(WHICH)),
    )


def orbit(dialogue: Dialogue) -> Iterator[Dialogue]:
    """Yield the 36 dialogues with the same transcript and the same question."""
    by_turn = dict(zip(dialogue.turns, dialogue.speakers, strict=True))
    for later in range(N_TURNS):
        turns = tuple((turn + later) % N_TURNS for turn in dialogue.turns)
        for other in range(len(PEOPLE)):
            speakers = tuple((by_turn[turn] + other) % len(PEOPLE) for turn in turns)
            for order in (turns, tuple(N_TURNS - 1 - turn for turn in turns)):
                yield Dialogue(dialogue.lines, dialogue.colours, order, speakers, dialogue.asker, dialogue.which)


def encode(dialogues: list[Dialogue]) -> Examples:
    """Return dialogues as ids with their positions; padding comes last, with the index it has."""
    ids, positions = (
        torch.zeros(len(dialogues), LONGEST, dtype=torch.long),
        torch.zeros(len(dialogues), LONGEST, 3, dtype=torch.long),
    )
    positions[:, :, 0] = torch.arange(LONGEST)
    lengths, number = [], {word: n for n, word in enumerate(WORDS)}
    for row, dialogue in enumerate(dialogues):
        words = dialogue.words()
        lengths.append(len(words))
        ids[row, : len(words)] = torch.tensor([number[word] for word, _, _ in words])
        positions[row, : len(words), 1:] = torch.tensor([position for _, *position in words])
    labels = torch.tensor([COLOURS.index(dialogue.answer) for dialogue in dialogues])
    return Examples(ids, positions, torch.tensor(lengths), labels)


def run(
    encodings: Sequence[str],
    settings: TaskSettings,
    seeds: Sequence[int],
    device: torch.device,
    bar: ProgressBar = no_progress,
) -> TaskStudy:
    """Train and test a model that answers the question, with every encoding and every seed."""
    return run_task(make_task(), encodings, settings, seeds, device, SHOWN, bar)


tables = accuracy_tables


COLUMNS = 36  # letters in the widest line, with the name of who says it


@in_style
def figure(study: TaskStudy) -> "Figure":
    """Draw accuracies, then each test dialogue in the order of its turns, once for each head of the last layer."""
    H = study.examples[0].weights.shape[1]
    heights = [0.6 + 0.45 * len(study.rows), *[2.0] * len(study.examples)]
    drawing = new_figure(figsize=(3.3 * H, sum(heights)))
    parts = drawing.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_bars(parts[0].subplots(), study)
    for part, shown in zip(parts[1:], study.examples, strict=True):
        for head, axes in enumerate(part.subplots(1, H, squeeze=False)[0]):
            draw_words(axes, shown, head)
            axes.set_title(f"last layer, head {head}", fontsize=8)
        part.suptitle(f"{attention_title(study)}; answer {shown.label}, the model says {shown.prediction}", fontsize=9)
    return drawing


def draw_words(axes: "Axes", shown: ShownExample, head: int) -> None:
    """Write the turns one below another, each word on a background as opaque as its weight."""
    weights = shown.weights[-1, head]
    axes.set(xlim=(0, COLUMNS), ylim=(len(PEOPLE) * 2 + 0.7, -0.7))
    axes.axis("off")
    ends: dict[int, int] = {}
    for word, (_, turn, speaker), weight in zip(shown.tokens.tolist(), shown.positions.tolist(), weights, strict=True):
        if turn not in ends:
            axes.text(0, turn, PEOPLE[speaker], fontsize=7, family="monospace", va="center", color="grey")
        at = ends.get(turn, 5)
        ground = (*rgb(INK), STRONGEST * float(weight / weights.amax()))
        box = {"facecolor": ground, "edgecolor": "none", "pad": 0.8}
        axes.text(at, turn, WORDS[word], fontsize=7, family="monospace", va="center", bbox=box)
        ends[turn] = at + len(WORDS[word]) + 1

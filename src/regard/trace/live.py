"""A search told as it happens: after each step the best that is being written."""

from collections.abc import Callable

import numpy as np

from regard.batch import Source
from regard.config import DecodeSettings
from regard.decode.beam import advance, candidates
from regard.decode.hypothesis import Hypothesis
from regard.decode.paths import first_paths
from regard.decode.translation import Translation
from regard.decode.translator import Translator
from regard.model import Seq2Seq
from regard.model.choices import Choices
from regard.trace.watched import Search, Watched, WatchedState

NO_LIMIT = np.array([2**31])  # it is the search that knows when to stop

Tell = Callable[[Hypothesis], None]


class Followed(Search):
    """Decides at each step as the search does, from the very numbers that it has; for one sentence."""

    def __init__(self, settings: DecodeSettings, n_hypotheses: int, tell: Tell):
        super().__init__([0], [[]])
        self.settings = settings
        self.tell = tell
        self.paths = first_paths(NO_LIMIT, n_hypotheses)
        self.paths.totals[:, 1:] = -np.inf  # all begin alike

    def hear(self, said: Choices) -> None:
        if self.settings.method == "beam":
            self.paths = advance(self.paths, candidates(said, self.paths.totals))
        else:
            tokens, gains = (x.numpy() for x in (said.tokens, said.gains))
            self.paths = self.paths.extend(tokens[:, :1], gains[:, :1], np.array([[0]]))
        self.tell(self.paths.hypotheses(np.array([0]), self.settings.length_penalty)[0][0])


class Told(Watched):
    """Another model, whose search for one sentence is told to somebody at each step."""

    def __init__(self, model: Seq2Seq, settings: DecodeSettings, tell: Tell):
        super().__init__(model)
        self.settings = settings
        self.tell = tell

    def start(self, src: Source, n_hypotheses: int) -> WatchedState:
        search = Followed(self.settings, n_hypotheses, self.tell)
        return WatchedState(self.model.start(src, n_hypotheses), search)


def follow(
    translator: Translator,
    text: str,
    settings: DecodeSettings,
    prefix: list[int],
    tell: Callable[[Translation], None],
) -> Translation:
    """Translates a text as ever, and tells after each step what it would be if what leads now came to its end.

    The ids of the prefix begin the translation. Whatever `tell` raises ends the search.
    """
    parts, found = translator.parts([text], 1)[0], []

    def so_far(now: Hypothesis) -> None:
        tell(_joined(translator, parts, [*found, [now]], settings))

    watching = Translator(
        Told(translator.model, settings, so_far),
        translator.tokenizer,
        settings,
        *(translator.src_lang, translator.tgt_lang, translator.max_len, translator.shortlist),
    )
    for place, part in enumerate(parts):
        found += watching.find([[part]], settings, [] if place else prefix, lambda n_lines: None)
    return _joined(translator, parts, found, settings)


def _joined(
    translator: Translator, parts: list[list[int]], found: list[list[Hypothesis]], settings: DecodeSettings
) -> Translation:
    return next(translator.joined([parts[: len(found)]], found, settings))

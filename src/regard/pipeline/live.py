"""A translation as it grows: every step of its search, written down and reported."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from regard.config import DecodeSettings
from regard.engine import Engine
from regard.padding import Ids
from regard.pipeline.translator import SegmentedText, Translation, Translator
from regard.search.beam import advance, candidates, one_beginning
from regard.search.decoder import DecoderState, IncrementalDecoder, TopK
from regard.search.hypothesis import Hypothesis, begin
from regard.shapes import Float, Int

if TYPE_CHECKING:
    from regard.model import Seq2Seq


@dataclass(eq=False)
class SearchRecord:
    """What one search was offered: at each step the most probable continuations, sentence by sentence."""

    left: list[int]  # the sentences that are still being written
    steps: list[list[TopK]] = field(default_factory=list)  # of each sentence, N hypotheses a step

    def record(self, best: TopK) -> None:
        """Write one step down."""
        n = len(best.tokens) // len(self.left)
        for number, sentence in enumerate(self.left):
            rows = slice(number * n, (number + 1) * n)
            self.steps[sentence].append(TopK(best.log_probs[rows], best.tokens[rows]))


class RecordedState(DecoderState):
    """Another state, with what happens to it written down."""

    def __init__(self, state: DecoderState, record: SearchRecord):
        self.state = state
        self.record = record

    def reorder(self, rows: Int[np.ndarray, " R"]) -> "RecordedState":
        return RecordedState(self.state.reorder(rows), self.record)

    def keep(self, sentences: Int[np.ndarray, " M"]) -> "RecordedState":
        self.record.left = [self.record.left[i] for i in sentences.tolist()]
        return RecordedState(self.state.keep(sentences), self.record)


class RecordingDecoder(IncrementalDecoder):
    """Another decoder, asked just what the search asks: the search finds what it finds without a recorder."""

    def __init__(self, decoder: IncrementalDecoder):
        self.decoder = decoder
        self.limit = decoder.limit
        self.records: list[SearchRecord] = []

    def start(self, sources: Sequence[Ids], n_hypotheses: int) -> RecordedState:
        B = len(sources)
        self.records.append(SearchRecord(list(range(B)), [[] for _ in range(B)]))
        return RecordedState(self.decoder.start(sources, n_hypotheses), self.records[-1])

    def top_k(
        self, tokens: Int[np.ndarray, " R"], state: DecoderState, forced: Int[np.ndarray, " R"] | None, k: int
    ) -> tuple[TopK, RecordedState]:
        assert isinstance(state, RecordedState), f"a recorder continues its own states, got {type(state)}"
        best, after = self.decoder.top_k(tokens, state.state, forced, k)
        state.record.record(best)
        return best, RecordedState(after, state.record)

    def log_probs(
        self, tokens: Int[np.ndarray, " R"], state: DecoderState, forced: Int[np.ndarray, " R"] | None
    ) -> tuple[Float[np.ndarray, "R V"], RecordedState]:
        assert isinstance(state, RecordedState), f"a recorder continues its own states, got {type(state)}"
        log_probs, after = self.decoder.log_probs(tokens, state.state, forced)
        return log_probs, RecordedState(after, state.record)


class RecordingEngine(Engine):
    """Another engine, searched step by step with everything it was offered written down."""

    def __init__(self, engine: Engine, decoder: RecordingDecoder | None = None):
        self._engine = engine
        self._decoder = decoder or RecordingDecoder(engine.decoder)

    @property
    def model(self) -> "Seq2Seq":
        return self._engine.model

    @property
    def decoder(self) -> RecordingDecoder:
        return self._decoder


def with_engine(translator: Translator, engine: RecordingEngine) -> Translator:
    """Return a translator that searches by another engine."""
    languages, limits = (translator.src_lang, translator.tgt_lang), (translator.max_len, translator.shortlist)
    return Translator(engine, translator.tokenizer, translator.settings, *languages, *limits)


NO_LIMIT = np.array([2**31])  # it is the search that knows when to stop

OnStep = Callable[[Hypothesis], None]


class LiveRecord(SearchRecord):
    """Decides at each step as the search does, from the very numbers that it has; for one sentence."""

    def __init__(self, settings: DecodeSettings, n_hypotheses: int, on_step: OnStep):
        super().__init__([0], [[]])
        self.settings = settings
        self.on_step = on_step
        self.partial = one_beginning(begin(NO_LIMIT, n_hypotheses))

    def record(self, best: TopK) -> None:
        super().record(best)
        if self.settings.method == "beam":
            self.partial = advance(self.partial, candidates(best, self.partial.totals))
        else:
            self.partial = self.partial.extend(best.tokens[:, :1], best.log_probs[:, :1], np.array([[0]]))
        self.on_step(self.partial.hypotheses(np.array([0]), self.settings.length_penalty)[0][0])


class StreamingDecoder(RecordingDecoder):
    """Another decoder, whose search for one sentence is reported at each step."""

    def __init__(self, decoder: IncrementalDecoder, settings: DecodeSettings, on_step: OnStep):
        super().__init__(decoder)
        self.settings = settings
        self.on_step = on_step

    def start(self, sources: Sequence[Ids], n_hypotheses: int) -> RecordedState:
        self.records.append(LiveRecord(self.settings, n_hypotheses, self.on_step))
        return RecordedState(self.decoder.start(sources, n_hypotheses), self.records[-1])


class LiveText:
    """A text that is translated part by part, searches written down; what was followed is not searched again."""

    def __init__(self, translator: Translator, text: str, settings: DecodeSettings, prefix: list[int]):
        self.translator = translator
        self.settings = settings
        self.prefix = prefix
        self.text = translator.segment([text], settings)[0]
        self._searched: dict[int, tuple[list[Hypothesis], list[TopK]]] = {}

    def searched(self, part: int) -> tuple[list[Hypothesis], list[TopK]]:
        """Return what was found for a part and what its search was offered; one that was not followed is searched.

        Where the part was searched for again, it is not known what that search was offered.
        """
        if part not in self._searched:
            self._search(part, RecordingDecoder(self.translator.engine.decoder))
        return self._searched[part]

    def follow(self, on_step: Callable[[Translation], None]) -> Translation:
        """Translate as always, and report what the translation would be if the leading hypothesis ended there.

        That is after each step of the first parts, and then after some parts at once, which is many times faster.
        Whatever `on_step` raises ends the search.
        """
        found: list[list[Hypothesis]] = []

        def so_far(now: Hypothesis) -> None:
            on_step(_merged(self.translator, self.text, [*found, [now]], self.settings))

        for part in range(len(self.text.parts))[:STEPPED_PARTS]:
            found.append(self._search(part, StreamingDecoder(self.translator.engine.decoder, self.settings, so_far)))
        for first in range(STEPPED_PARTS, len(self.text.parts), JOINT_PARTS):
            rest = self.text.parts[first : first + JOINT_PARTS]
            some = SegmentedText(rest, [""] * (len(rest) + 1), None, self.text.texts[first : first + JOINT_PARTS])
            first_found = self.translator.search([some], self.settings, [], lambda n_lines: None)
            found += self.translator.recover([some], first_found, self.settings)
            on_step(_merged(self.translator, self.text, found, self.settings))
        return _merged(self.translator, self.text, found, self.settings)

    def _search(self, part: int, decoder: RecordingDecoder) -> list[Hypothesis]:
        recording = with_engine(self.translator, RecordingEngine(self.translator.engine, decoder))
        one = SegmentedText([self.text.parts[part]], ["", ""], None, self.text.texts[part : part + 1])
        forced = [] if part else self.prefix
        first = recording.search([one], self.settings, forced, lambda n_lines: None)
        (found,) = self.translator.recover([one], first, self.settings, forced)
        self._searched[part] = found, decoder.records[0].steps[0] if found is first[0] else []
        return found


STEPPED_PARTS, JOINT_PARTS = 4, 16


def _merged(
    translator: Translator, text: SegmentedText, found: list[list[Hypothesis]], settings: DecodeSettings
) -> Translation:
    now = text if len(found) == len(text.parts) else text.first(len(found))
    return next(translator.merge([now], found, settings))

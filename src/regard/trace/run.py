"""`trace()` for translation and generation, live and after."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import Source
from regard.config import DecodeSettings
from regard.data.tokenizer import Tokenizer
from regard.model import DecoderOnly, Seq2Seq
from regard.model.seq2seq import Choices
from regard.padding import BOS, EOS
from regard.pipeline.generator import Writer, generate
from regard.pipeline.translator import WINDOW, Translation, Translator, batches, make_translation
from regard.search.beam import advance, candidates
from regard.search.hypothesis import Hypothesis, first_paths
from regard.trace.replay import Heard, Replay, Search, Tape, Watched, WatchedState, private_copy, replay
from regard.trace.search_tree import Tree, grow, written
from regard.trace.trace import Option, Step, Trace


@dataclass(frozen=True, eq=False)
class Traced:
    """A translation as it always is, and a trace of each part of the text that the model read by itself."""

    translation: Translation
    traces: tuple[Trace, ...]

    @property
    def text(self) -> str:
        """The translation's text."""
        return self.translation.text

    @property
    def trace(self) -> Trace:
        """The one trace there is."""
        if len(self.traces) != 1:
            raise ValueError(f"a text must be read in one part to have one trace, got {len(self.traces)}: see traces")
        return self.traces[0]

    def _ipython_display_(self) -> None:
        """Shows each trace in a notebook, one below the other."""
        from IPython.display import display  # which calls this

        for trace in self.traces:
            display(trace)


def traced(
    translator: Translator,
    texts: Sequence[str],
    settings: DecodeSettings | None = None,
    prefix: str | list[int] = "",
) -> list[Traced]:
    """Translates texts just as `translator.translate` does, window by window, and looks into each.

    A prefix may be ids as well: a text of the same pieces might be cut into others.
    """
    settings = settings or translator.settings
    forced = translator.tokenizer.encode(prefix, "tgt") if isinstance(prefix, str) else prefix
    windows = ((first, texts[first : first + WINDOW]) for first in range(0, len(texts), WINDOW))
    return [one for first, window in windows for one in _traced(translator, window, first + 1, settings, forced)]


def _traced(
    translator: Translator, texts: Sequence[str], first: int, settings: DecodeSettings, forced: list[int]
) -> Iterator[Traced]:
    watched, languages = Watched(translator.model), (translator.src_lang, translator.tgt_lang)
    limits = translator.max_len, translator.shortlist
    watching = Translator(watched, translator.tokenizer, settings, *languages, *limits)
    parts = watching.parts(texts, first)
    found = watching.find(parts, settings, forced, lambda n_lines: None)
    flat = [part for text in parts for part in text]
    heard = iter(zip(flat, found, _answers(watched, flat, settings), strict=True))
    for translation, text in zip(watching.joined(parts, found, settings), parts, strict=True):
        yield Traced(translation, tuple(make_trace(translator, settings, *one) for one in islice(heard, len(text))))


def _answers(watched: Watched, parts: list[list[int]], settings: DecodeSettings) -> list[list[Choices]]:
    """Gives what the searches were told about each part."""
    answers: list[list[Choices]] = [[] for _ in parts]
    for batch, search in zip(batches(parts, settings.batch_tokens), watched.searches, strict=True):
        for i, heard in zip(batch, search.answers, strict=True):
            answers[i] = heard
    return answers


def make_trace(
    translator: Translator,
    settings: DecodeSettings,
    source: list[int],
    found: list[Hypothesis],
    answers: list[Choices],
) -> Trace:
    """Looks at the best of what was found for one part."""
    tree = make_tree(translator.tokenizer, settings, found, answers)
    return look_at(translator, settings, source, tree, tree.best)


def make_tree(tokenizer: Tokenizer, settings: DecodeSettings, found: list[Hypothesis], answers: list[Choices]) -> Tree:
    """Gives the tree of a search, with the names of its pieces."""
    return grow(found, answers, settings, partial(_named, tokenizer))


def _named(tokenizer: Tokenizer, tokens: Sequence[int]) -> dict[int, str]:
    return dict(zip(tokens, tokenizer.pieces(tokens, "tgt"), strict=True))


def look_at(translator: Translator, settings: DecodeSettings, source: list[int], tree: Tree, leaf: int) -> Trace:
    """Reads the path to one node of a tree again, and writes down all there is to see."""
    hypothesis, tokenizer = tree.hypothesis(leaf), translator.tokenizer
    said = written(hypothesis)
    seen = replay(translator.model, source, said)
    return Trace(
        text=tokenizer.decode(source, "src"),
        output=tokenizer.decode(hypothesis.ids, "tgt"),
        src_lang=translator.src_lang,
        tgt_lang=translator.tgt_lang,
        settings=settings,
        source=tuple(tokenizer.pieces([*source, EOS], "src")),
        read=tuple(tokenizer.pieces([BOS, *said[:-1]], "tgt")),
        steps=_steps(translator, said, hypothesis, seen),
        looks=seen.looks,
        flows=seen.flows,
        tree=tree,
        leaf=leaf,
        again=partial(look_at, translator, settings, source, tree),
    )


def _steps(translator: Translator, said: list[int], hypothesis: Hypothesis, seen: Replay) -> tuple[Step, ...]:
    pieces = translator.tokenizer.pieces(said, "tgt")
    options = [
        _options(translator.tokenizer.pieces(tokens, "tgt"), gains)
        for tokens, gains in zip(seen.tokens.tolist(), seen.gains.tolist(), strict=True)
    ]
    columns = (pieces, hypothesis.token_log_probs, seen.log_probs.tolist(), options)
    return tuple(Step(*row) for row in zip(*columns, strict=True))


def _options(pieces: list[str], gains: list[float]) -> tuple[Option, ...]:
    """Lists what might have followed; a small vocabulary has fewer that may."""
    return tuple(Option(piece, gain) for piece, gain in zip(pieces, gains, strict=True) if gain > -inf)


def traced_text(writer: Writer, prompt: str, settings: DecodeSettings | None = None) -> Traced:
    """Writes after a prompt just as `writer.write` does, and looks into the best that was found."""
    chosen = settings or writer.settings
    watched = Watched(writer.model)
    ids, about = writer.ids(prompt), (writer.src_lang, writer.max_len, writer.form, writer.room)
    found = Writer(watched, writer.tokenizer, chosen, *about).search(ids, chosen)
    tree = make_tree(writer.tokenizer, chosen, found, watched.searches[0].answers[0])
    written = make_translation([[]], [found], writer.tokenizer, "", chosen.length_penalty)
    return Traced(written, (_look_at(writer, chosen, prompt, tree, tree.best),))


def _look_at(writer: Writer, settings: DecodeSettings, prompt: str, tree: Tree, leaf: int) -> Trace:
    """Looks at one path; what was given to go on with stands where a translation has its source."""
    seen = look_at(writer, settings, [], tree, leaf)
    return replace(seen, text=prompt, source=(), again=partial(_look_at, writer, settings, prompt, tree))


@dataclass(frozen=True, eq=False)
class Wrote:
    """One token, its log-probability, and the mean over all heads of the weights by which it was said.

    The last weight is of the token before it, and so on backwards; a model that has forgotten the beginning has fewer.
    """

    token: int
    log_prob: float
    looked: Float[Tensor, " T"]


def watch_writing(writer: Writer, prompt: list[int], settings: DecodeSettings) -> Iterator[Wrote]:
    """Writes as `writer.generate` does, on a copy of its modules that is listened to, and tells each token at once."""
    model, tape = private_copy(cast(DecoderOnly, writer.model)), Tape()
    for number, layer in enumerate(model.decoder.layers):
        tape.listen(layer.attention.attention, "decoder", number)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    for token, log_prob in generate(model, prompt, settings, writer.room):
        yield Wrote(token, log_prob, torch.stack([_last_row(heard) for heard in tape.heard]).mean(0))


def _last_row(heard: Heard) -> Float[Tensor, " T"]:
    """Gives what the newest query looked at, over all heads, and forgets the call."""
    weights = heard.look().weights()[:, -1].mean(0)
    heard.calls.clear()
    heard.outputs.clear()
    return weights


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

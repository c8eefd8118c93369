"""Texts are translated as ever, by a model whose answers are written down, and then looked into."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf

from regard.batch import BOS, EOS
from regard.config import DecodeSettings
from regard.decode.hypothesis import Hypothesis
from regard.decode.translation import Translation
from regard.decode.translator import WINDOW, Translator, batches
from regard.model.choices import Choices
from regard.text.tokenizer import Tokenizer
from regard.trace.grown import grow, written
from regard.trace.replay import Replay, replay
from regard.trace.trace import Option, Step, Trace
from regard.trace.tree import Tree
from regard.trace.watched import Watched


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

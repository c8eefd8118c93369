"""`trace()`: run a pipeline as always, and record what the run did; live and after."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from regard.config import DecodeSettings
from regard.data.tokenizer import Tokenizer
from regard.engine import Engine
from regard.engine.native import NativeEngine
from regard.extras import is_installed
from regard.padding import BOS, EOS, length_sorted
from regard.pipeline.live import LiveText, RecordingDecoder, RecordingEngine, with_engine
from regard.pipeline.translator import WINDOW, Translation, Translator
from regard.search.decoder import TopK
from regard.search.hypothesis import Hypothesis
from regard.shapes import np
from regard.trace.attention_map import AttentionMap
from regard.trace.native_replay import Reading, native_replay
from regard.trace.search_tree import SearchTree, build_tree, written_tokens
from regard.trace.trace import OutputToken, Replay, TokenAlternative, Trace

if TYPE_CHECKING:
    from regard.pipeline.generator import Generator


@dataclass(frozen=True, eq=False)
class TracedTranslation:
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
            raise ValueError(
                f"a text must be read in one part to have one trace, got {len(self.traces)} parts: use trace_texts"
            )
        return self.traces[0]

    def _ipython_display_(self) -> None:
        """Show each trace in a notebook, one below the other."""
        from IPython.display import display  # which calls this

        for trace in self.traces:
            display(trace)


def trace(
    pipeline: "Translator | Generator", text: str = "", settings: DecodeSettings | None = None, prefix: str = ""
) -> Trace:
    """Translate or continue a text just as the pipeline does, and return what was seen in the run.

    A text of several sentences is read at once, so that there is one trace; one that is too long for that is refused,
    and `trace_texts` returns a trace of each part.
    """
    if isinstance(pipeline, Translator):
        at_once = replace(settings or pipeline.settings, split="overlong")
        return trace_texts(pipeline, [text], at_once, prefix)[0].trace
    from regard.trace.generation import trace_prompt  # PyTorch, as whatever generates

    return trace_prompt(pipeline, text, settings, prefix)


def trace_texts(
    translator: Translator,
    texts: Sequence[str],
    settings: DecodeSettings | None = None,
    prefix: str | list[int] = "",
) -> list[TracedTranslation]:
    """Translate texts just as `translator.translate` does, window by window, and record each run.

    A prefix may be ids as well: a text of the same tokens might be cut into others.
    """
    settings = settings or translator.settings
    forced = translator.tokenizer.encode(prefix, "tgt") if isinstance(prefix, str) else prefix
    windows = (texts[first : first + WINDOW] for first in range(0, len(texts), WINDOW))
    return [one for window in windows for one in _trace_window(translator, window, settings, forced)]


def _trace_window(
    translator: Translator, texts: Sequence[str], settings: DecodeSettings, forced: list[int]
) -> Iterator[TracedTranslation]:
    engine = RecordingEngine(translator.engine)
    recording = with_engine(translator, engine)
    segmented = recording.segment(texts, settings)
    first = recording.search(segmented, settings, forced, lambda n_lines: None)
    found = translator.recover(segmented, first, settings, forced)
    flat = [part for text in segmented for part in text.parts]
    offered = zip(_steps_of_parts(engine.decoder, flat, settings), first, found, strict=True)
    steps = [own if last is before else [] for own, before, last in offered]
    searches = iter(zip(flat, found, steps, strict=True))
    for translation, text in zip(recording.merge(segmented, found, settings), segmented, strict=True):
        traces = tuple(make_trace(translator, settings, *one) for one in islice(searches, len(text.parts)))
        yield TracedTranslation(translation, traces)


def _steps_of_parts(decoder: RecordingDecoder, parts: list[list[int]], settings: DecodeSettings) -> list[list[TopK]]:
    """Return what the searches were offered for each part, in the order of the parts and not of the batches."""
    steps: list[list[TopK]] = [[] for _ in parts]
    batches = length_sorted([len(part) + 1 for part in parts], settings.batch_tokens)
    for batch, record in zip(batches, decoder.records, strict=True):
        for i, one in zip(batch, record.steps, strict=True):
            steps[i] = one
    return steps


def make_trace(
    translator: Translator, settings: DecodeSettings, source: list[int], found: list[Hypothesis], steps: list[TopK]
) -> Trace:
    """Return the trace of the best hypothesis of one part."""
    tree = make_tree(translator.tokenizer, settings, found, steps)
    return trace_path(translator, settings, source, tree, tree.best)


def trace_part(live: LiveText, part: int) -> Trace:
    """Return the trace of one part of a text, as `trace_texts` does."""
    return make_trace(live.translator, live.settings, live.text.parts[part], *live.searched(part))


def make_tree(tokenizer: Tokenizer, settings: DecodeSettings, found: list[Hypothesis], steps: list[TopK]) -> SearchTree:
    """Return the tree of a search, with the names of its tokens: the paths of what was found if no steps are known."""
    searched = settings if steps else replace(settings, method="greedy")
    return build_tree(found, steps, searched, partial(_token_names, tokenizer))


def _token_names(tokenizer: Tokenizer, tokens: Sequence[int]) -> dict[int, str]:
    return dict(zip(tokens, tokenizer.pieces(tokens, "tgt"), strict=True))


def trace_path(
    pipeline: "Translator | Generator", settings: DecodeSettings, source: list[int], tree: SearchTree, end_node: int
) -> Trace:
    """Read the path to one node of a tree again through the plain model, and record all there is to see."""
    hypothesis, tokenizer = tree.hypothesis(end_node), pipeline.tokenizer
    written = written_tokens(hypothesis)
    seen = _replay(pipeline.engine, source, written)
    src_lang, tgt_lang = _languages(pipeline)
    return Trace(
        text=tokenizer.decode(source, "src"),
        output=tokenizer.decode(hypothesis.ids, "tgt"),
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        settings=settings,
        source=tuple(tokenizer.pieces([*source, EOS], "src")),
        read=tuple(tokenizer.pieces([BOS, *written[:-1]], "tgt")),
        steps=_steps(tokenizer, written, hypothesis, seen),
        attention=seen.attention,
        residual_norms=seen.residual_norms,
        tree=tree,
        end_node=end_node,
        replay=partial(trace_path, pipeline, settings, source, tree),
    )


def _replay(engine: Engine, source: list[int], written: list[int]) -> Replay:
    """Read through the plain modules, whose tensors users know, or in NumPy where there is no PyTorch."""
    if isinstance(engine, NativeEngine) and not is_installed("torch"):
        return native_replay(engine.decoder.weights, source, written)
    from regard.trace.replay import replay  # PyTorch

    return replay(engine.model, source, written)


def read_cross(engine: Engine, source: list[int], written: list[int]) -> list[AttentionMap]:
    """Read a path again for each layer's cross attention: in NumPy where the model is packed for C++."""
    if not isinstance(engine, NativeEngine):
        return [each for each in _replay(engine, source, written).attention if each.kind == "cross"]
    reading = Reading(engine.decoder.weights)
    memory = reading.read("encoder", np.array([*source, EOS], np.int64))
    reading.read("decoder", np.array([BOS, *written[:-1]], np.int64), memory)
    return [each for each in reading.attention if each.kind == "cross"]


def _languages(pipeline: "Translator | Generator") -> tuple[str, str]:
    if isinstance(pipeline, Translator):
        return pipeline.src_lang, pipeline.tgt_lang
    return pipeline.language, pipeline.language


def _steps(tokenizer: Tokenizer, written: list[int], hypothesis: Hypothesis, seen: Replay) -> tuple[OutputToken, ...]:
    options = [
        _options(tokenizer.pieces(tokens, "tgt"), log_probs)
        for tokens, log_probs in zip(seen.tokens.tolist(), seen.top_log_probs.tolist(), strict=True)
    ]
    columns = (tokenizer.pieces(written, "tgt"), hypothesis.token_log_probs, seen.log_probs.tolist(), options)
    return tuple(OutputToken(*row) for row in zip(*columns, strict=True))


def _options(tokens: list[str], log_probs: list[float]) -> tuple[TokenAlternative, ...]:
    """List what might have followed; a small vocabulary has fewer tokens that may."""
    return tuple(TokenAlternative(piece, value) for piece, value in zip(tokens, log_probs, strict=True) if value > -inf)

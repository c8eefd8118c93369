"""`trace()`: run a pipeline as always, and record what the run did; for translation and generation, live and after."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from itertools import islice
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import DecodeSettings
from regard.data.tokenizer import Tokenizer
from regard.padding import BOS, EOS, length_sorted
from regard.pipeline.generator import Generator, generate_tokens
from regard.pipeline.live import LiveText, RecordingDecoder, RecordingEngine, with_engine
from regard.pipeline.translator import UNREAD, WINDOW, Translation, Translator, make_translation
from regard.search.decoder import TopK
from regard.search.hypothesis import Hypothesis
from regard.trace.replay import Recorder, Recording, Replay, private_copy, replay
from regard.trace.search_tree import SearchTree, build_tree, written_tokens
from regard.trace.trace import OutputToken, TokenAlternative, Trace


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


@singledispatch
def trace(
    pipeline: Translator | Generator, text: str, settings: DecodeSettings | None = None, prefix: str = ""
) -> Trace:
    """Translate or continue a text just as the pipeline does, and return what was seen in the run.

    A text of several sentences is read at once, so that there is one trace; one that is too long for that is refused,
    and `trace_texts` returns a trace of each part.
    """
    raise TypeError(f"a trace is of a Translator or a Generator, got {type(pipeline).__name__}: see regard.load")


@trace.register
def _trace_translation(
    pipeline: Translator, text: str, settings: DecodeSettings | None = None, prefix: str = ""
) -> Trace:
    at_once = replace(settings or pipeline.settings, split="overlong")
    return trace_texts(pipeline, [text], at_once, prefix)[0].trace


@trace.register
def _trace_generation(
    pipeline: Generator, text: str = "", settings: DecodeSettings | None = None, prefix: str = ""
) -> Trace:
    if prefix:
        raise ValueError(f"a generator begins with its prompt and takes no prefix, got {prefix!r}")
    return trace_generation(pipeline, text, settings).trace


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
    found = recording.search(segmented, settings, forced, lambda n_lines: None)
    flat = [part for text in segmented for part in text.parts]
    searches = iter(zip(flat, found, _steps_of_parts(engine.decoder, flat, settings), strict=True))
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
    """Return the tree of a search, with the names of its tokens."""
    return build_tree(found, steps, settings, partial(_token_names, tokenizer))


def _token_names(tokenizer: Tokenizer, tokens: Sequence[int]) -> dict[int, str]:
    return dict(zip(tokens, tokenizer.pieces(tokens, "tgt"), strict=True))


def trace_path(
    pipeline: Translator | Generator, settings: DecodeSettings, source: list[int], tree: SearchTree, end_node: int
) -> Trace:
    """Read the path to one node of a tree again through the plain model, and record all there is to see."""
    hypothesis, tokenizer = tree.hypothesis(end_node), pipeline.tokenizer
    written = written_tokens(hypothesis)
    seen = replay(pipeline.model, source, written)
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


def _languages(pipeline: Translator | Generator) -> tuple[str, str]:
    if isinstance(pipeline, Generator):
        return pipeline.language, pipeline.language
    return pipeline.src_lang, pipeline.tgt_lang


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


def trace_generation(generator: Generator, prompt: str, settings: DecodeSettings | None = None) -> TracedTranslation:
    """Continue a prompt just as `generator.generate` does, and record the run of the best hypothesis."""
    settings = settings or generator.settings
    engine = RecordingEngine(generator.engine)
    about = (generator.language, generator.max_len, generator.form, generator.window)
    found = Generator(engine, generator.tokenizer, settings, *about).search(generator.encode(prompt), settings)
    tree = make_tree(generator.tokenizer, settings, found, engine.decoder.records[0].steps[0])
    text = make_translation(UNREAD, [found], generator.tokenizer, settings.length_penalty)
    return TracedTranslation(text, (_trace_prompted(generator, settings, prompt, tree, tree.best),))


def _trace_prompted(
    generator: Generator, settings: DecodeSettings, prompt: str, tree: SearchTree, end_node: int
) -> Trace:
    """Trace one path; the prompt stands where a translation has its source."""
    seen = trace_path(generator, settings, [], tree, end_node)
    return replace(seen, text=prompt, source=(), replay=partial(_trace_prompted, generator, settings, prompt, tree))


@dataclass(frozen=True, eq=False)
class GeneratedToken:
    """One token, its log-probability, and the mean over all heads of the attention weights by which it was written.

    The last weight is of the token before it, and so on backwards; a model that has forgotten the beginning has fewer.
    """

    token: int
    log_prob: float
    weights: Float[Tensor, " T"]


def trace_tokens(generator: Generator, prompt: list[int], settings: DecodeSettings) -> Iterator[GeneratedToken]:
    """Write as `generator.stream` does, on a copy of its modules with recorders, and yield each token at once."""
    model, recorder = private_copy(generator.model), Recorder()
    for number, layer in enumerate(model.decoder.layers):
        recorder.record_attention(layer.attention.attention, "decoder", number)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    for token, log_prob in generate_tokens(model, prompt, settings, generator.window):
        yield GeneratedToken(
            token, log_prob, torch.stack([_last_row(recording) for recording in recorder.recordings]).mean(0)
        )


def _last_row(recording: Recording) -> Float[Tensor, " T"]:
    """Return the mean weights of the newest query over all heads, and drop the recorded call."""
    weights = recording.attention_map().weights()[:, -1].mean(0)
    recording.calls.clear()
    recording.outputs.clear()
    return weights

"""Trace what a model of text alone writes: after a prompt, at once or token by token."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from regard.config import DecodeSettings
from regard.pipeline.generator import Generator, generate_tokens
from regard.pipeline.live import RecordingEngine
from regard.pipeline.translator import UNREAD, make_translation
from regard.shapes import Float
from regard.trace.replay import Recorder, Recording, private_copy
from regard.trace.run import TracedTranslation, make_tree, trace_path
from regard.trace.search_tree import SearchTree
from regard.trace.trace import Trace


def trace_prompt(generator: Generator, prompt: str, settings: DecodeSettings | None = None, prefix: str = "") -> Trace:
    """Continue a prompt, and return what was seen in the run."""
    if not isinstance(generator, Generator):
        raise TypeError(f"a trace is of a Translator or a Generator, got {type(generator).__name__}: see regard.load")
    if prefix:
        raise ValueError(f"a generator begins with its prompt and takes no prefix, got {prefix!r}")
    return trace_generation(generator, prompt, settings).trace


def trace_generation(generator: Generator, prompt: str, settings: DecodeSettings | None = None) -> TracedTranslation:
    """Continue a prompt just as `generator.generate` does, and record the run of the best hypothesis."""
    settings = settings or generator.settings
    engine = RecordingEngine(generator.engine)
    about = (generator.language, generator.max_len, generator.form, generator.window)
    found = Generator(engine, generator.tokenizer, settings, *about).search(generator.encode(prompt), settings)
    tree = make_tree(generator.tokenizer, settings, found, engine.decoder.records[0].steps[0])
    text = make_translation(UNREAD, [found], generator.tokenizer, settings.length_penalty)
    return TracedTranslation(text, (_trace_path(generator, settings, prompt, tree, tree.best),))


def _trace_path(generator: Generator, settings: DecodeSettings, prompt: str, tree: SearchTree, end_node: int) -> Trace:
    """Trace one path; the prompt stands where a translation has its source."""
    seen = trace_path(generator, settings, [], tree, end_node)
    return replace(seen, text=prompt, source=(), replay=partial(_trace_path, generator, settings, prompt, tree))


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

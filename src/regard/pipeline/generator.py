"""Prompts -> texts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from regard.batch import make_source
from regard.checkpoint.weights import Checkpoint
from regard.config import DecodeSettings, choose
from regard.data.tokenizer import Tokenizer
from regard.engine import Engine
from regard.model import DecoderOnly
from regard.model.seq2seq import allowed_log_probs
from regard.model.transformer import DecoderOnlyState
from regard.padding import BOS, EOS
from regard.pipeline.translator import UNREAD, Translation, make_translation
from regard.search.hypothesis import Hypothesis
from regard.search.sampling import check_sampling, draw, uniforms
from regard.search.scoring import Likelihood, document_likelihood, text_likelihood
from regard.shapes import Float

NEAR = 8  # ids before a token that decide how it is written: with a space before it, as part of a character


def generate_tokens(
    model: DecoderOnly, prompt: Sequence[int], settings: DecodeSettings, window: int | None, sample: int = 0
) -> Iterator[tuple[int, float]]:
    """Write after a prompt until EOS, or `max_extra` tokens; yield each as it comes, with its log-probability.

    Of the `n_best` samples of a seed this is the one with this number: what `sample_search` finds. `window` is the
    number of tokens that the model attends to. When there are as many, the newest half is read again from its beginning
    on, and the rest is forgotten: half a window of context at the least, for two readings of each token.
    """
    check(settings, window, sample)
    n = len(prompt) + settings.max_extra
    draws = uniforms([[]], [n], settings)[0, sample]
    ids, state = [BOS, *prompt], None
    for position in range(len(prompt), n):
        logits, state = _read(model, ids, state, window)
        token, log_prob = _choose(logits, draws[position : position + 1], settings)
        yield token, log_prob
        if token == EOS:
            return
        ids.append(token)


def check(settings: DecodeSettings, window: int | None, sample: int) -> None:
    """Raise ValueError for what cannot be written."""
    choose({"greedy": 0, "sample": 0}, settings.method, "method of writing token by token")
    if settings.max_extra < 0:
        raise ValueError(f"max_extra must be 0 or more tokens after the prompt, got {settings.max_extra}")
    if window is not None and window < 2:
        raise ValueError(f"a model must attend to 2 tokens or more, got {window}")
    if not 0 <= sample < settings.n_best:
        raise ValueError(f"sample must lie in 0 … {settings.n_best - 1}, one of n_best, got {sample}")
    check_sampling(settings)


@torch.inference_mode()
def _read(
    model: DecoderOnly, ids: list[int], state: DecoderOnlyState | None, window: int | None
) -> tuple[Float[Tensor, "1 V"], DecoderOnlyState]:
    """Read what the model has not read yet, or the newest half of the window where there is no space for more."""
    device = next(model.parameters()).device
    wanted = len(ids) if state is None else state.length + 1
    if window is not None and wanted > window:
        ids, state = [BOS, *ids[1:][-(window // 2) :]], None
    if state is None:
        return model.advance(torch.tensor([ids], device=device), model.start(make_source([[]]).to(device), 1))
    return model.advance(torch.tensor([ids[-1:]], device=device), state)


@torch.inference_mode()
def _choose(
    logits: Float[Tensor, "1 V"], draws: Float[np.ndarray, " 1"], settings: DecodeSettings
) -> tuple[int, float]:
    log_probs = allowed_log_probs(logits, None).cpu().numpy()
    token = log_probs.argmax(-1) if settings.method == "greedy" else draw(log_probs, draws, settings)
    return int(token[0]), float(log_probs[0, token[0]])


def as_text(tokenizer: Tokenizer, before: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
    """Yield what each token adds to the text; bytes of a character wait for its last."""
    near, waiting = list(before[-NEAR:]), []
    for token in tokens:
        waiting.append(token)
        old, new = (tokenizer.decode(ids) for ids in (near, near + waiting))
        if not new.endswith("\N{REPLACEMENT CHARACTER}"):
            yield new[len(old) :]
            near, waiting = (near + waiting)[-NEAR:], []
    if waiting:
        yield tokenizer.decode(near + waiting)[len(tokenizer.decode(near)) :]


# Schemes that were made to attend farther back than a model has learned to (measured in docs/guide/generate.md).
EXTRAPOLATING = {"alibi"}


@dataclass(eq=False, repr=False)
class Generator:
    """An engine of a decoder-only model with its tokenizer, ready to write."""

    engine: Engine
    tokenizer: Tokenizer
    settings: DecodeSettings
    language: str
    max_len: int
    form: str = "text"
    window: int | None = None  # tokens that the model attends to; all without one

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, engine: Engine) -> "Generator":
        """Return a generator of a model as it was saved; it attends as far back as it has learned to."""
        made = checkpoint.settings
        extrapolates = made.model.position.name in EXTRAPOLATING
        limits = [limit for limit in (None if extrapolates else made.text.max_len, checkpoint.model.limit) if limit]
        about = (made.decode, made.data.tgt_lang, made.text.max_len, made.data.form)
        return cls(engine, checkpoint.tokenizer, *about, min(limits, default=None))

    @property
    def model(self) -> DecoderOnly:
        """The plain PyTorch modules."""
        return cast(DecoderOnly, self.engine.model)

    def generate(self, prompt: str = "", settings: DecodeSettings | None = None) -> Translation:
        """Write whole texts by any search, the prompt included, no longer than the window; the best one first."""
        settings = settings or self.settings
        found = self.search(self.encode(prompt), settings)
        return make_translation(UNREAD, [found], self.tokenizer, settings.length_penalty)

    def stream(self, prompt: str = "", settings: DecodeSettings | None = None, sample: int = 0) -> Iterator[str]:
        """Continue a text, token by token as it is written, for `max_extra` tokens or until the model ends it.

        A beam is searched to its end before anything is known to be part of it, and comes at once.
        """
        settings = settings or self.settings
        if settings.method == "beam":
            yield self.generate(prompt, settings).text[len(prompt) :]
            return
        before = self.encode(prompt)
        yield from as_text(self.tokenizer, before, (token for token, _ in self.tokens(before, settings, sample)))

    def tokens(self, prompt: Sequence[int], settings: DecodeSettings, sample: int = 0) -> Iterator[tuple[int, float]]:
        """Continue ids, and yield each token with its log-probability."""
        return generate_tokens(self.model, prompt, settings, self.window, sample)

    def search(self, prompt: list[int], settings: DecodeSettings) -> list[Hypothesis]:
        """Return hypotheses that begin with a prompt, best first."""
        ((_, found),) = self.engine.search([[]], self.limit_to_window(prompt, settings), [prompt])
        return found

    def limit_to_window(self, prompt: Sequence[int], settings: DecodeSettings) -> DecodeSettings:
        """Return the settings by which a search writes `max_extra` tokens after a prompt, as far as the window goes."""
        wanted = len(prompt) + settings.max_extra
        if self.window is not None and len(prompt) >= self.window:
            raise ValueError(
                f"a prompt must be shorter than the {self.window} tokens that the model attends to, "
                f"got {len(prompt)}: shorten it, or stream the text token by token"
            )
        return replace(settings, max_ratio=0.0, max_extra=wanted if self.window is None else min(wanted, self.window))

    def log_likelihood(self, *texts: str, batch_tokens: int = 8192) -> Likelihood:
        """Return how probable texts are to the model: each a document by itself, or all one after the other.

        Which of the two is how the model has learned; `search/scoring.py` says what is counted.
        """
        ids = self.tokenizer.encode_batch(texts, "tgt")
        if self.form == "documents":
            return document_likelihood(self.model, ids, batch_tokens)
        return text_likelihood(self.model, [token for some in ids for token in some], self.max_len, batch_tokens)

    def encode(self, prompt: str) -> list[int]:
        """Return the ids of a prompt, which must be of known characters."""
        ids = self.tokenizer.encode(prompt, "tgt")
        if self.tokenizer.unk_id in ids:
            unknown = prompt[self.tokenizer.spans(prompt, "tgt")[ids.index(self.tokenizer.unk_id)][0]]
            raise ValueError(f"a prompt must be of characters that the model knows, got {unknown!r}: leave it out")
        return ids

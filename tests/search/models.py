"""Models for the tests of decoding: tiny real ones, and plain ones that do what they are told."""

import torch
from torch import Tensor

from regard.batch import make_batch
from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings
from regard.engine.plain import PlainDecoder
from regard.model import Seq2Seq
from regard.model.seq2seq import State
from regard.padding import BOS, EOS, PAD
from regard.search import SEARCH

FAMILIES = ("transformer", "recurrent")
WORDS = (4, 5, 6)  # with EOS four tokens that can be said
V = 7
SOURCES = [[4, 5], [6], [4, 4, 6, 5, 6], [5, 6, 4], [5], [6, 6, 5, 4]]


def make_model(family="transformer", seed=0, vocab_size=V, sharp=2.0, dropout=0.0, **parts):
    """Makes a model with random parameters, large enough to say different things to different sources."""
    torch.manual_seed(seed)
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 10, "n_heads": 2, "d_ff": 7, "dropout": dropout}
    model = (
        build_model(ModelSettings(family=family, tie="none", **sizes, **parts), (vocab_size, vocab_size))
        .double()
        .eval()
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(sharp if parameter.dim() == 2 else 1.0)
    return model


def settings(method="beam", **changes):
    """Gives settings for targets of at most `limit` tokens, EOS included."""
    limit = changes.pop("limit", 5)
    return DecodeSettings(method=method, **({"max_ratio": 0.0, "max_extra": limit} | changes))


def find(model, sources, prefix=None, **changes):
    """Searches by the method that the settings name."""
    chosen = settings(**changes)
    return SEARCH[chosen.method](PlainDecoder(model), sources, chosen, prefix)


def teacher_forced(model, source, target):
    """Gives the log-probabilities of each next token after BOS and after each token of the target, (T + 1, V)."""
    with torch.inference_mode():
        return model(make_batch([source], [target]))[0].log_softmax(-1)


class Script(State):
    """The tokens that each sentence's hypotheses read from, and how many were written."""

    def __init__(self, tokens: Tensor, n: int, length: int):
        self.tokens, self.n, self.length = tokens, n, length

    def reorder(self, rows):
        return self

    def keep(self, sentences):
        return Script(self.tokens[sentences], self.n, self.length)


class Echo(Seq2Seq):
    """Says its source and then EOS, whatever it reads; other tokens have a small chance."""

    def __init__(self, vocab_size=V, chance=1e-12):
        super().__init__()
        self.vocab_size, self.chance = vocab_size, chance
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def features(self, batch):
        raise NotImplementedError

    def start(self, src, n_hypotheses):
        return Script(src.ids, n_hypotheses, 0)

    def step(self, tokens, state):
        place = min(state.length, state.tokens.shape[1] - 1)
        likely = state.tokens[:, place].repeat_interleave(state.n)
        likely = torch.where(likely == PAD, EOS, likely)
        assert len(likely) == len(tokens)
        logits = torch.full((len(tokens), self.vocab_size), self.chance, dtype=torch.float64)
        logits[torch.arange(len(tokens)), likely] = 1.0
        return logits.log(), Script(state.tokens, state.n, state.length + 1)


class Counting(Seq2Seq):
    """Another model, with the rows of each of its steps written down and the tokens it was given to read."""

    def __init__(self, model: Seq2Seq):
        super().__init__()
        self.model, self.rows, self.read = model, [], []

    def features(self, batch):
        return self.model.features(batch)

    def start(self, src, n_hypotheses):
        return self.model.start(src, n_hypotheses)

    def step(self, tokens, state):
        self.rows.append(len(tokens))
        self.read.append(tokens.tolist())
        return self.model.step(tokens, state)


class Constant(Seq2Seq):
    """Says the same whatever it reads: these logits at every step, or a row for each step and then the last."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.atleast_2d(torch.tensor(logits, dtype=torch.float64)))

    def features(self, batch):
        raise NotImplementedError

    def start(self, src, n_hypotheses):
        return Script(src.ids, n_hypotheses, 0)

    def step(self, tokens, state):
        assert state.length or (tokens == BOS).all()
        now = self.logits.detach()[min(state.length, len(self.logits) - 1)]
        return now.repeat(len(tokens), 1), Script(state.tokens, state.n, state.length + 1)


def same(found, expected):
    """Asserts that two searches found the same hypotheses with the same scores."""
    assert [[each.ids for each in some] for some in found] == [[each.ids for each in some] for some in expected]
    for some, others in zip(found, expected, strict=True):
        for a, b in zip(some, others, strict=True):
            assert a.finished == b.finished
            torch.testing.assert_close(a.token_log_probs, b.token_log_probs, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close((a.score, a.log_prob), (b.score, b.log_prob), rtol=1e-9, atol=1e-9)

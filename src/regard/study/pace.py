"""How fast models train as sentences grow: all places at once, or one after another (S8.2)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.batch import BOS, EOS, Batch, Shape, pack
from regard.build import build_model
from regard.config import Settings, TrainSettings, preset, settings
from regard.model import Seq2Seq
from regard.study.clock import Timing, take_turns
from regard.train.captured import Step, make_step
from regard.train.distributed import Team
from regard.train.feed import Group, Packed
from regard.train.learner import Learner
from regard.train.loss import smoothed_cross_entropy
from regard.train.step import make_optimiser

FIRST_PIECE = 4  # ids below are PAD, UNK, BOS and EOS
WARM = 3  # steps until a GPU has captured a shape
# All but cuDNN's, which makes a plan for each number of keys: step by step there are as many as tokens.
UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class Race:
    """Models of one preset learn from batches of as many target tokens, in ever longer sentences."""

    preset: str
    lengths: tuple[int, ...]
    slots: int


@dataclass(frozen=True)
class Pace:
    """One way of training at one length."""

    way: str
    length: int
    rows: int
    tokens_per_second: float
    slowest: float
    fastest: float


class Stepwise(nn.Module):
    """A learner that gives the decoder one target token at a time, as if it could not see them all at once."""

    def __init__(self, model: Seq2Seq, smoothing: float):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        with sdpa_kernel(UNPLANNED):
            logits = said_in_steps(self.model, batch)
        return smoothed_cross_entropy(logits, batch.tgt.say, batch.tgt.real, self.smoothing)


def said_in_steps(model: Seq2Seq, batch: Batch) -> Float[Tensor, "B T V"]:
    """Gives the logits of every next target token, made one after another with the model's own memory of the past."""
    state, logits = model.start(batch.src, 1), []
    for tokens in batch.tgt.read.unbind(dim=1):
        found, state = model.step(tokens, state)
        logits.append(found)
    return torch.stack(logits, dim=1)


WAYS: dict[str, tuple[str, Callable[[Seq2Seq, float], nn.Module]]] = {
    "Transformer, in parallel": ("transformer", Learner),
    "Transformer, step by step": ("transformer", Stepwise),
    "GRU with attention": ("recurrent", Learner),
}


def run_races(race: Race, device: torch.device, rounds: int, seed: int) -> list[Pace]:
    """Times whole training steps of every way, length by length."""
    paces = []
    for length in race.lengths:
        group = make_group(race, length, seed)
        calls = {way: partial(make_taker(way, race.preset, device, seed), group, 1e-4) for way in WAYS}
        for call in list(calls.values()) * (WARM if device.type == "cuda" else 0):
            call()
        times = take_turns(calls, device, rounds)
        paces += [_pace(way, length, group, times[way]) for way in WAYS]
    return paces


def make_group(race: Race, length: int, seed: int) -> Group:
    """Makes one batch of random sentences of `length` tokens a side, their ends included."""
    rows, vocab_size = max(1, race.slots // length), _made(race.preset, "transformer").text.vocab_size
    chance = np.random.default_rng([seed, length])
    src = chance.integers(FIRST_PIECE, vocab_size, size=(rows, length))
    tgt = chance.integers(FIRST_PIECE, vocab_size, size=(rows, length + 1))
    src[:, -1], tgt[:, 0], tgt[:, -1] = EOS, BOS, EOS
    shape = Shape(rows, length, length)
    packed = pack((src, np.full(rows, length)), (tgt, np.full(rows, length + 1)), shape)
    return Group([Packed(packed, shape, full=True)], rows * length, 0, 1, 0)


def make_taker(way: str, size: str, device: torch.device, seed: int) -> Step:
    """Makes the trainer's own step for one way of training: forward, backward, clipping, AdamW."""
    family, learner = WAYS[way]
    made = _made(size, family)
    torch.manual_seed(seed)
    model = build_model(made.model, (made.text.vocab_size, made.text.vocab_size)).to(device).train()
    train = _learning(made.train, device)
    optimiser = make_optimiser(model, train)
    return make_step(learner(model, train.label_smoothing), optimiser, train, Team(), device, lambda message: None)


def _made(size: str, family: str) -> Settings:
    return settings(Settings, preset(size, family))


def _learning(train: TrainSettings, device: torch.device) -> TrainSettings:
    return replace(train, precision="bfloat16" if device.type == "cuda" else "float32")


def _pace(way: str, length: int, group: Group, timing: Timing) -> Pace:
    n, rows = group.n_tokens, group.parts[0].shape.rows
    return Pace(way, length, rows, n / timing.median, n / timing.high, n / timing.low)

"""The layers that `regard study complexity` compares: their laws, their depth, their speed in training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import Attention, ScaledDot
from regard.batch import Batch, BatchShape, pack
from regard.build import build_heads, build_model
from regard.config import HeadsSettings, Settings, TrainSettings, parse_settings, preset
from regard.model import Seq2Seq
from regard.padding import BOS, EOS
from regard.shapes import Float
from regard.study.timing import Timing, take_turns
from regard.train.batching import PackedBatch, StepBatches
from regard.train.distributed import World
from regard.train.loss import LossModule, smoothed_cross_entropy
from regard.train.step import Step, make_optimiser, make_step

Call = Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]


class Mixing(nn.Module):
    """Attention without projections, by its definition: `softmax(x xᵀ / √d) x`, with all weights in memory."""

    def __init__(self, attention: Attention):
        super().__init__()
        self.attention = attention

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        head = x[:, None]
        return (self.attention.weights(head, head) @ head)[:, 0]


class Fused(nn.Module):
    """The same by the fused kernel, which never materialises the weights."""

    def __init__(self, attention: Attention):
        super().__init__()
        self.attention = attention

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        head = x[:, None]
        return self.attention(head, head, head)[:, 0]


class SelfAttention(nn.Module):
    """The whole layer, with the projections of queries, keys, values and output; one head."""

    def __init__(self, d: int):
        super().__init__()
        self.heads = build_heads(HeadsSettings(d_model=d, n_heads=1, bias=False))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        heads = self.heads
        q, k, v = (projection(x)[:, None] for projection in (heads.w_q, heads.w_k, heads.w_v))
        return heads.w_o((heads.attention.weights(q, k) @ v)[:, 0])


class Recurrence(nn.Module):
    """PyTorch's GRU."""

    def __init__(self, d: int):
        super().__init__()
        self.gru = nn.GRU(d, d, batch_first=True, bias=False)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.gru(x)[0]


class Convolution(nn.Module):
    """A convolution over the position itself and the k − 1 before it."""

    def __init__(self, d: int, k: int):
        super().__init__()
        self.k = k
        self.convolution = nn.Conv1d(d, d, k, bias=False)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.convolution(F.pad(x.mT, (self.k - 1, 0))).mT


@dataclass(frozen=True)
class LayerLaw:
    """The theory of a layer: operations of one pass, and the exponents of n and of d in them."""

    make: Callable[[int, int], nn.Module]  # from d and k
    operations: Callable[[int, int, int], int]  # from n, d and k; two for each multiply–add
    formula: str
    by_n: float | None  # None where two terms compete, and the exponent lies between theirs
    by_d: float | None
    steps: str
    path: str


ATTENTION_LAW = LayerLaw(
    make=lambda d, k: Mixing(ScaledDot()),
    operations=lambda n, d, k: 4 * n * n * d,
    formula="n²d",
    by_n=2.0,
    by_d=1.0,
    steps="1",
    path="1",
)
LAYERS: dict[str, LayerLaw] = {
    "attention": ATTENTION_LAW,
    "recurrence": LayerLaw(
        make=lambda d, k: Recurrence(d),
        operations=lambda n, d, k: 12 * n * d * d,
        formula="nd²",
        by_n=1.0,
        by_d=2.0,
        steps="n",
        path="n",
    ),
    "convolution": LayerLaw(
        make=Convolution,
        operations=lambda n, d, k: 2 * k * n * d * d,
        formula="knd²",
        by_n=1.0,
        by_d=2.0,
        steps="1",
        path="n/k",
    ),
    "attention, fused": replace(ATTENTION_LAW, make=lambda d, k: Fused(ScaledDot())),
    "attention with projections": LayerLaw(
        make=lambda d, k: SelfAttention(d),
        operations=lambda n, d, k: 4 * n * n * d + 8 * n * d * d,
        formula="n²d + nd²",
        by_n=None,
        by_d=None,
        steps="1",
        path="1",
    ),
}


def count(layer: nn.Module, n: int, d: int) -> int:
    """Count the operations of one pass over one sequence with PyTorch's counter; nothing is computed."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer.to("meta")(torch.empty(1, n, d, device="meta"))
    return counter.get_total_flops()


LIMIT = 4096  # rounds after which a path is given up


@dataclass(frozen=True)
class Depth:
    """Of one layer at one length: rounds until it is done, and until the last output depends on the first input."""

    n: int
    steps: int
    path: int


def measure_depth(name: str, n: int, k: int, seed: int = 0, d: int = 4) -> Depth:
    """Measure steps and path, in float64, with parameters drawn from the seed.

    One round is all that can be done at once: a layer of attention or convolution, a cell of a recurrence at every
    position. The steps are the rounds until the layer's own result is complete; the path is the rounds, in as many
    layers as that takes, until the last output has a gradient with respect to the first input.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = LAYERS[name].make(d, k).double()
    x = torch.randn(1, n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rounds = cell_rounds(layer.gru) if isinstance(layer, Recurrence) else layer_rounds(layer)
    return Depth(n, count_steps(rounds, x, layer(x).detach()), count_path(rounds, x))


Rounds = Callable[[Float[Tensor, "B T D"], int], Float[Tensor, "B T D"]]  # from the input and a number of rounds


def layer_rounds(layer: Call) -> Rounds:
    """Return rounds of which each is one more layer."""

    def after(x: Tensor, n_rounds: int) -> Tensor:
        for _ in range(n_rounds):
            x = layer(x)
        return x

    return after


def cell_rounds(gru: nn.GRU) -> Rounds:
    """Return rounds in which every position applies the cell to its own input and the previous position's state."""

    def after(x: Float[Tensor, "1 T D"], n_rounds: int) -> Float[Tensor, "1 T D"]:
        states = torch.zeros_like(x)
        for _ in range(n_rounds):
            before = torch.nn.functional.pad(states[:, :-1], (0, 0, 1, 0))
            # All positions at once: T sequences of one token each.
            states = gru(x.transpose(0, 1), before.contiguous())[0].transpose(0, 1)
        return states

    return after


def count_steps(rounds: Rounds, x: Float[Tensor, "1 T D"], result: Float[Tensor, "1 T D"]) -> int:
    """Count the rounds until the layer's own result is complete."""
    with torch.no_grad():
        for n_rounds in range(1, LIMIT):
            if (rounds(x, n_rounds) - result).abs().max() < 1e-12:
                return n_rounds
    raise ValueError(f"the layer's result must be there after {LIMIT} rounds, and is not")


def count_path(rounds: Rounds, x: Float[Tensor, "1 T D"]) -> int:
    """Count the rounds until the last output depends on the first input."""
    x = x.clone().requires_grad_()
    for n_rounds in range(1, LIMIT):
        (gradient,) = torch.autograd.grad(rounds(x, n_rounds)[0, -1].sum(), x)
        if bool(gradient[0, 0].any()):
            return n_rounds
    raise ValueError(f"the last output must depend on the first input after {LIMIT} rounds, and does not")


FIRST_TOKEN = 4  # ids below are PAD, UNK, BOS and EOS
WARM_UP = 3  # steps until a GPU has captured a shape
# All but cuDNN's, which makes a plan for each number of keys: step by step there are as many as tokens.
UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class TrainingSweep:
    """Models of one preset train on batches of equally many target tokens, in ever longer sentences."""

    preset: str
    lengths: tuple[int, ...]
    slots: int


@dataclass(frozen=True)
class Throughput:
    """The speed of one way of training at one sentence length."""

    way: str
    length: int
    rows: int
    tokens_per_second: float
    slowest: float
    fastest: float


class StepwiseLoss(nn.Module):
    """A loss that gives the decoder one target token at a time, as in decoding."""

    def __init__(self, model: Seq2Seq, smoothing: float):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        with sdpa_kernel(UNPLANNED):
            logits = stepwise_logits(self.model, batch)
        return smoothed_cross_entropy(logits, batch.tgt.labels, batch.tgt.token_mask, self.smoothing)


def stepwise_logits(model: Seq2Seq, batch: Batch) -> Float[Tensor, "B T V"]:
    """Return the logits of every next target token, computed one after another with the model's own cache."""
    state, logits = model.start(batch.src, 1), []
    for tokens in batch.tgt.inputs.unbind(dim=1):
        next_logits, state = model.step(tokens, state)
        logits.append(next_logits)
    return torch.stack(logits, dim=1)


WAYS: dict[str, tuple[str, Callable[[Seq2Seq, float], nn.Module]]] = {
    "Transformer, in parallel": ("transformer", LossModule),
    "Transformer, step by step": ("transformer", StepwiseLoss),
    "GRU with attention": ("recurrent", LossModule),
}


def measure_throughput(sweep: TrainingSweep, device: torch.device, rounds: int, seed: int) -> list[Throughput]:
    """Time whole training steps of every way, length by length."""
    throughputs = []
    for length in sweep.lengths:
        group = make_group(sweep, length, seed)
        calls = {way: partial(make_training_step(way, sweep.preset, device, seed), group, 1e-4) for way in WAYS}
        for call in list(calls.values()) * (WARM_UP if device.type == "cuda" else 0):
            call()
        times = take_turns(calls, device, rounds)
        throughputs += [_throughput(way, length, group, times[way]) for way in WAYS]
    return throughputs


def make_group(sweep: TrainingSweep, length: int, seed: int) -> StepBatches:
    """Make one batch of random sentences of `length` tokens per side, EOS included."""
    rows, vocab_size = max(1, sweep.slots // length), _preset(sweep.preset, "transformer").text.vocab_size
    generator = np.random.default_rng([seed, length])
    src = generator.integers(FIRST_TOKEN, vocab_size, size=(rows, length))
    tgt = generator.integers(FIRST_TOKEN, vocab_size, size=(rows, length + 1))
    src[:, -1], tgt[:, 0], tgt[:, -1] = EOS, BOS, EOS
    shape = BatchShape(rows, length, length)
    packed = pack((src, np.full(rows, length)), (tgt, np.full(rows, length + 1)), shape)
    return StepBatches([PackedBatch(packed, shape, full=True)], rows * length, 0, 1, 0)


def make_training_step(way: str, size: str, device: torch.device, seed: int) -> Step:
    """Make the trainer's own step for one way of training: forward, backward, clipping, AdamW."""
    family, learner = WAYS[way]
    made = _preset(size, family)
    torch.manual_seed(seed)
    model = build_model(made.model, (made.text.vocab_size, made.text.vocab_size)).to(device).train()
    train = _learning(made.train, device)
    optimiser = make_optimiser(model, train)
    return make_step(learner(model, train.label_smoothing), optimiser, train, World(), device, lambda message: None)


def _preset(size: str, family: str) -> Settings:
    return parse_settings(Settings, preset(size, family))


def _learning(train: TrainSettings, device: torch.device) -> TrainSettings:
    return replace(train, precision="bfloat16" if device.type == "cuda" else "float32")


def _throughput(way: str, length: int, group: StepBatches, timing: Timing) -> Throughput:
    n, rows = group.n_tokens, group.parts[0].shape.rows
    return Throughput(way, length, rows, n / timing.median, n / timing.high, n / timing.low)

"""Classification tasks whose tokens have coordinates, and the classifier that reads them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from regard.batch import sequence_mask
from regard.build import NORM_FIRST, assemble_heads, build_part, refuse_meaningless
from regard.config import HeadsSettings, ModelSettings, PartSettings, choose, unknown
from regard.mask import Mask, padding
from regard.model.layers import Dropout, Embedding, FeedForward, Linear, make_table
from regard.model.multihead import check_sizes
from regard.model.norm import NORM, Residual
from regard.model.transformer import Encoder, EncoderLayer
from regard.padding import PAD
from regard.position import POSITION, Position
from regard.shapes import Bool, Float, Int, Shaped
from regard.train.examples import ExampleSettings

# Draws other examples of the same classes from some: for training only.
Vary = Callable[[Shaped[Tensor, "B T *P"], torch.Generator], Shaped[Tensor, "B T *P"]]


@dataclass(frozen=True, eq=False)
class Examples:
    """Numbered examples; `positions` has a row for each of them, or one that all share."""

    tokens: Shaped[Tensor, "N T *P"]  # patches as numbers, or words as ids
    positions: Int[Tensor, "M T A"]  # one column for each of the task's axes
    lengths: Int[Tensor, " N"]  # tokens from here on are padding
    labels: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, numbers: Int[Tensor, " B"]) -> "Examples":
        """Return some examples, in any order."""
        positions = self.positions if len(self.positions) == 1 else self.positions[numbers]
        return Examples(self.tokens[numbers], positions, self.lengths[numbers], self.labels[numbers])

    def to(self, device: torch.device) -> "Examples":
        return Examples(*(part.to(device) for part in (self.tokens, self.positions, self.lengths, self.labels)))

    def shuffled(self, seed: int) -> "Examples":
        """Permute the tokens of each example, padding aside, while the positions stay."""
        N, T = self.tokens.shape[:2]
        draws = torch.rand(N, T, generator=torch.Generator().manual_seed(seed))
        behind = torch.arange(T) >= self.lengths.cpu()[:, None]  # padding stays at the end
        order = (draws + behind).argsort(dim=1).to(self.tokens.device)
        return replace(self, tokens=self.tokens[torch.arange(N, device=order.device)[:, None], order])


@dataclass(frozen=True, eq=False)
class Task:
    """A classification task with examples for training, validation and test."""

    name: str
    classes: tuple[str, ...]
    axes: tuple[str, ...]  # what each column of the positions is
    size: int  # numbers in a patch, or words in the vocabulary
    train: Examples
    valid: Examples
    test: Examples
    vary: Vary | None = None


NOTHING = "nothing"  # a coordinate that is 0 everywhere
PROBE = {"width": 8, "d_head": 8, "n_heads": 1, "max_len": 1}


@dataclass(frozen=True)
class Encoding:
    """A position encoding by name, and the coordinates it receives; `none` receives none."""

    name: str
    scheme: str
    coordinates: tuple[str, ...]


def parse_encoding(text: str, axes: Sequence[str]) -> Encoding:
    """Parse `scheme` or `scheme:axis,axis`; without axes a scheme receives the last ones, or the first if it takes one.

    The first axis of every task is the index of the token in reading order.
    """
    scheme, sign, named = text.partition(":")
    n = build_part(POSITION, PartSettings(scheme), "position", PROBE).n_axes
    if scheme == "none":
        return Encoding(text, scheme, ())
    given = tuple(named.split(",")) if sign else _default_axes(n, axes, scheme)
    for name in given:
        if name not in (*axes, NOTHING):
            raise ValueError(unknown(name, [*axes, NOTHING], f"axis of {text!r}"))
    if len(given) != n:
        raise ValueError(f"position {scheme!r} takes {n} coordinates, got {len(given)} in {text!r}")
    return Encoding(text, scheme, given)


def coordinates(
    encoding: Encoding, axes: Sequence[str], positions: Int[Tensor, "M T A"]
) -> Int[Tensor, "M T"] | Int[Tensor, "M T A2"]:
    """Return the positions that an encoding receives."""
    zeros, names = torch.zeros_like(positions[..., 0]), encoding.coordinates or (NOTHING,)
    columns = [zeros if name == NOTHING else positions[..., axes.index(name)] for name in names]
    return columns[0] if len(columns) == 1 else torch.stack(columns, dim=-1)


def _default_axes(n: int, axes: Sequence[str], scheme: str) -> tuple[str, ...]:
    if n > len(axes):
        raise ValueError(f"position {scheme!r} takes {n} coordinates, and here are {len(axes)}: {', '.join(axes)}")
    return tuple(axes[:1]) if n == 1 else tuple(axes[-n:])


def oracle_accuracy(examples: Examples, positions: Int[Tensor, "M T *axes"]) -> float:
    """Return the largest accuracy on these examples of any model that reads sets.

    A model that sees its tokens as a set of pairs (token, position) gives equal sets the same answer. So of examples
    with equal sets it gets at most those of their most frequent class right: a proof for these very examples, not an
    estimate. Where all sets differ the bound is 1.
    """
    groups: dict[bytes, Counter[int]] = defaultdict(Counter)
    for number, (length, label) in enumerate(zip(examples.lengths.tolist(), examples.labels.tolist(), strict=True)):
        tokens = examples.tokens[number, :length].reshape(length, -1)
        where = positions[number if len(positions) > 1 else 0, :length].reshape(length, -1)
        pairs = np.concatenate([where.cpu().double().numpy(), tokens.cpu().double().numpy()], axis=1)
        groups[pairs[np.lexsort(pairs.T)].tobytes()][label] += 1
    return sum(max(labels.values()) for labels in groups.values()) / len(examples)


OWN_TOKEN = {"class": True, "mean": False}


class Classifier(nn.Module):
    """`logits = W pool(encoder(embedding(tokens, positions))) + b`.

    The pool is the mean over real tokens, or what a learned token of its own, set before the others, has gathered
    (arXiv:2010.11929, 3.1). That token stands at coordinates 0 and gets no code there. Where the scheme opens no door
    the encoder sees a set: the logits are the same for every order of the tokens.
    """

    def __init__(self, embedding: nn.Module, encoder: Encoder, d_model: int, n_classes: int, pool: str = "class"):
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"n_classes must be 2 or more, got {n_classes}")
        self.embedding = embedding
        self.encoder = encoder
        own = choose(OWN_TOKEN, pool, "pool")
        self.own_token: Float[Tensor, " D"] | None = nn.Parameter(torch.randn(d_model) * 0.02) if own else None
        self.output = Linear(d_model, n_classes)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *P"],
        positions: Int[Tensor, "#B T *axes"],
        lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Return the logits of each class; without lengths no token is padding."""
        x = self.embedding(tokens, positions)
        if self.own_token is not None:
            x = torch.cat([self.own_token.expand(len(x), 1, -1), x], dim=1)
            positions = torch.cat([torch.zeros_like(positions[:, :1]), positions], dim=1)
            lengths = None if lengths is None else lengths + 1
        T = x.shape[1]
        mask = Mask() if lengths is None else padding(lengths, T)
        real = None if lengths is None else sequence_mask(lengths, T)
        x = self.encoder(x, positions, mask, real)
        return self.output(x[:, 0] if self.own_token is not None else mean_of_real(x, real))


def mean_of_real(x: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B D"]:
    """Return the mean over the tokens that are not padding; 0 where there are none."""
    if real is None:
        return x.mean(dim=1)
    share = real[..., None].to(x.dtype)
    return (x * share).sum(dim=1) / share.sum(dim=1).clamp(min=1.0)


class Patches(nn.Module):
    """`W x + b` of each patch's numbers, joined with positions, dropped out while training (arXiv:2010.11929, 3.1)."""

    def __init__(self, d_patch: int, d_model: int, position: Position, dropout: float):
        super().__init__()
        self.project = Linear(d_patch, d_model)
        self.position = position
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def forward(self, patches: Float[Tensor, "B T P"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D"]:
        return self.dropout(self.position.embed(self.project(patches), positions))


SIZE = 0.5**0.5  # root mean square of sines and cosines


def build_classifier(
    settings: ModelSettings, position: Position, size: int, n_classes: int, reads: str, pool: str
) -> Classifier:
    """Build a classifier that reads patches of `size` numbers, or ids below `size`."""
    make = choose({"patches": _patches, "ids": _ids}, reads, "kind of token")
    embedding = make(settings, position, size)
    return Classifier(embedding, build_encoder(settings, position), settings.d_model, n_classes, pool)


def build_encoder(settings: ModelSettings, position: Position) -> Encoder:
    """Build the encoder's layers around one position encoding."""
    if min(settings.n_encoder_layers, settings.d_ff) < 1:
        raise ValueError(
            f"n_encoder_layers and d_ff must be 1 or more, got {settings.n_encoder_layers} and {settings.d_ff}"
        )
    heads = HeadsSettings(settings.d_model, settings.n_heads, attention=settings.attention)
    first, norm = choose(NORM_FIRST, settings.norm_place, "norm_place"), choose(NORM, settings.norm, "norm")
    layers = [
        EncoderLayer(
            assemble_heads(heads, position),
            FeedForward(settings.d_model, settings.d_ff, settings.activation, settings.dropout),
            [Residual(norm(settings.d_model), first, settings.dropout) for _ in range(2)],
        )
        for _ in range(settings.n_encoder_layers)
    ]
    return Encoder(layers, norm(settings.d_model) if first else None)


def make_position(settings: ModelSettings, n_positions: int, n_speakers: int = 1, base: float = 10000.0) -> Position:
    """Build the position encoding, with tables as long as the positions need.

    Learned codes start as large as sines. Their usual small initialisation suits long training; here a model has
    hundreds of steps, too few to grow codes from near 0.
    """
    check_sizes(settings.d_model, settings.n_heads, settings.d_model)
    refuse_meaningless(settings.attention.name, settings.position.name)
    d_head = settings.d_model // settings.n_heads
    sizes = {
        "width": settings.d_model,
        "d_head": d_head,
        "n_heads": settings.n_heads,
        "max_len": n_positions,
        "n_speakers": n_speakers,
        "base": base,
        "scale": 1.0 if settings.attention.name == "dot" else d_head**-0.5,
    }
    position = build_part(POSITION, settings.position, "position", sizes)
    with torch.no_grad():
        for codes in position.parameters():
            codes *= SIZE / codes.square().mean().sqrt()
    return position


def _patches(settings: ModelSettings, position: Position, size: int) -> nn.Module:
    return Patches(size, settings.d_model, position, settings.dropout)


def _ids(settings: ModelSettings, position: Position, size: int) -> nn.Module:
    return Embedding(make_table(size, settings.d_model, PAD), position, settings.dropout)


SMALL_MODEL = ModelSettings(
    n_encoder_layers=2, d_model=32, n_heads=2, d_ff=64, activation="gelu", norm_place="before", dropout=0.0
)


@dataclass(frozen=True)
class TaskSettings:
    """The model and its training."""

    model: ModelSettings
    learn: ExampleSettings
    pool: str = "class"
    base: float = 10000.0  # of the wavelengths, where an encoding has any; short axes need short waves


EVAL_BATCH = 512


def make_model(task: Task, encoding: Encoding, settings: TaskSettings, seed: int) -> Classifier:
    """Build the model that a trial starts from."""
    torch.manual_seed(seed)
    chosen = replace(settings.model, position=PartSettings(encoding.scheme))
    positions = task.train.positions
    position = make_position(chosen, int(positions.amax()) + 1, int(positions[..., -1].amax()) + 1, settings.base)
    reads = "patches" if task.train.tokens.is_floating_point() else "ids"
    return build_classifier(chosen, position, task.size, len(task.classes), reads, settings.pool)


def read(model: Classifier, task: Task, encoding: Encoding, examples: Examples) -> Float[Tensor, "N C"]:
    """Return the logits of some examples; lengths are passed only where there is padding."""
    full = bool((examples.lengths == examples.tokens.shape[1]).all())
    positions = coordinates(encoding, task.axes, examples.positions)
    return model(examples.tokens, positions, None if full else examples.lengths)


@torch.no_grad()
def accuracy(model: Classifier, task: Task, encoding: Encoding, examples: Examples) -> float:
    """Return the share of examples whose most likely class is right."""
    model.eval()
    numbers = torch.arange(len(examples), device=examples.labels.device).split(EVAL_BATCH)
    predicted = [read(model, task, encoding, batch).argmax(dim=-1) for batch in map(examples.some, numbers)]
    return int((torch.cat(predicted) == examples.labels).sum()) / len(examples)

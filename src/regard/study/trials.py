"""Classifier, training, seeds side by side."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from regard.build import NORM_FIRST, assemble_heads, build_part, refuse_meaningless
from regard.config import HeadsSettings, ModelSettings, PartSettings, choose
from regard.mask import Mask, padding
from regard.model.layers import Dropout, Embedding, FeedForward, Linear, make_table
from regard.model.multihead import check_sizes
from regard.model.norm import NORM, Residual
from regard.model.transformer import Encoder, EncoderLayer
from regard.padding import PAD
from regard.position import POSITION, Position
from regard.study.parallel import side_by_side
from regard.study.task import Examples, Task, Told, tell
from regard.trace.attention import RecordedAttention
from regard.trace.replay import Recorder
from regard.train.examples import EpochResult, ExampleSettings, train_on_examples

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
        """Gives the logits of each class; without lengths every token is real."""
        x = self.embedding(tokens, positions)
        if self.own_token is not None:
            x = torch.cat([self.own_token.expand(len(x), 1, -1), x], dim=1)
            positions = torch.cat([torch.zeros_like(positions[:, :1]), positions], dim=1)
            lengths = None if lengths is None else lengths + 1
        T = x.shape[1]
        mask = Mask() if lengths is None else padding(lengths, T)
        real = None if lengths is None else torch.arange(T, device=x.device) < lengths[:, None]
        x = self.encoder(x, positions, mask, real)
        return self.output(x[:, 0] if self.own_token is not None else mean_of_real(x, real))


def mean_of_real(x: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B D"]:
    """Gives the mean over the tokens that are no padding; of none it is 0."""
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
    """Makes a classifier that reads patches of `size` numbers, or ids below `size`."""
    make = choose({"patches": _patches, "ids": _ids}, reads, "kind of token")
    embedding = make(settings, position, size)
    return Classifier(embedding, build_encoder(settings, position), settings.d_model, n_classes, pool)


def build_encoder(settings: ModelSettings, position: Position) -> Encoder:
    """Makes the encoder's layers around one position scheme."""
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


def build_places(settings: ModelSettings, n_places: int, n_speakers: int = 1, base: float = 10000.0) -> Position:
    """Makes the position scheme; tables are as long as the places need.

    What is learned in it starts as large as sines are. Their own small starts suit long training; here a model has
    hundreds of steps, in which places that begin near 0 are hardly found.
    """
    check_sizes(settings.d_model, settings.n_heads, settings.d_model)
    refuse_meaningless(settings.attention.name, settings.position.name)
    d_head = settings.d_model // settings.n_heads
    sizes = {
        "width": settings.d_model,
        "d_head": d_head,
        "n_heads": settings.n_heads,
        "max_len": n_places,
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


AT_ONCE = 512  # examples in one pass that learns nothing
SHUFFLE = 12345  # draws the control's order, the same in every trial


@dataclass(frozen=True)
class TaskSettings:
    """What learns a task, and how."""

    model: ModelSettings
    learn: ExampleSettings
    pool: str = "class"
    base: float = 10000.0  # of the wavelengths, where a scheme has any; short axes want short waves


@dataclass(frozen=True)
class Trial:
    """What came of learning once; the model is as it was when validation was best."""

    told: Told
    seed: int
    parameters: int
    valid: float
    test: float
    shuffled: float  # on the test, with the tokens of each example shuffled and the places left where they were
    lessons: list[EpochResult]


def run_trials(
    task: Task, ways: Sequence[Told], settings: TaskSettings, seeds: Sequence[int], device: torch.device
) -> Iterator[tuple[Trial, Classifier]]:
    """Learns the task in every way with every seed."""
    for told in ways:
        for seed in seeds:
            yield run_trial(task, told, settings, seed, device)


def run_trial(
    task: Task, told: Told, settings: TaskSettings, seed: int, device: torch.device
) -> tuple[Trial, Classifier]:
    """Learns once; which epoch's model is kept, validation decides."""
    model = make_model(task, told, settings, seed).to(device)
    train, valid, test = (part.to(device) for part in (task.train, task.valid, task.test))
    draws = torch.Generator().manual_seed(seed)

    def loss(numbers: Tensor) -> Tensor:
        batch = train.some(numbers.to(device))
        if task.vary is not None:
            batch = replace(batch, tokens=task.vary(batch.tokens, draws))
        return F.cross_entropy(read(model, task, told, batch), batch.labels)

    def judge() -> float:
        return accuracy(model, task, told, valid)

    learn = replace(settings.learn, seed=seed)
    lessons = list(train_on_examples(model, len(train), loss, judge, learn))
    trial = Trial(
        told=told,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        valid=max(lesson.score for lesson in lessons),
        test=accuracy(model, task, told, test),
        shuffled=accuracy(model, task, told, test.shuffled(SHUFFLE)),
        lessons=lessons,
    )
    return trial, model


def make_model(task: Task, told: Told, settings: TaskSettings, seed: int) -> Classifier:
    """Makes the model that one trial begins with."""
    torch.manual_seed(seed)
    chosen = replace(settings.model, position=PartSettings(told.scheme))
    places = task.train.places
    position = build_places(chosen, int(places.amax()) + 1, int(places[..., -1].amax()) + 1, settings.base)
    reads = "patches" if task.train.tokens.is_floating_point() else "ids"
    return build_classifier(chosen, position, task.size, len(task.classes), reads, settings.pool)


def read(model: Classifier, task: Task, told: Told, examples: Examples) -> Float[Tensor, "N C"]:
    """Gives the logits of some examples; only where there is padding is the model told of it."""
    full = bool((examples.lengths == examples.tokens.shape[1]).all())
    places = tell(told, task.axes, examples.places)
    return model(examples.tokens, places, None if full else examples.lengths)


@torch.no_grad()
def accuracy(model: Classifier, task: Task, told: Told, examples: Examples) -> float:
    """Gives the share of examples whose likeliest class is right."""
    model.eval()
    numbers = torch.arange(len(examples), device=examples.labels.device).split(AT_ONCE)
    said = [read(model, task, told, batch).argmax(dim=-1) for batch in map(examples.some, numbers)]
    return int((torch.cat(said) == examples.labels).sum()) / len(examples)


@dataclass(frozen=True)
class Job:
    """One trial: what its process must know, and where it leaves what it found."""

    told: Told
    seed: int
    settings: TaskSettings
    device: str
    task: Path
    found: Path


def run_beside(
    task: Task, ways: Sequence[Told], settings: TaskSettings, seeds: Sequence[int], device: torch.device, at_once: int
) -> Iterator[tuple[Trial, Classifier]]:
    """Does what `run_trials` does, so many trials at once, and gives each as it ends; one thread works for each."""
    with TemporaryDirectory(prefix="regard-trials-") as folder:
        kept = Path(folder) / "task.pt"
        torch.save(task, kept)
        chosen = [(told, seed) for told in ways for seed in seeds]
        jobs = [
            Job(*each, settings, str(device), kept, Path(folder) / f"{number}.pt") for number, each in enumerate(chosen)
        ]
        for job, code in side_by_side(learn, jobs, at_once):
            if code:
                raise RuntimeError(f"learning {job.told.name} with seed {job.seed} ended with exit code {code}")
            trial, weights = torch.load(job.found, weights_only=False)  # what our own process wrote
            model = make_model(task, job.told, settings, job.seed)
            model.load_state_dict(weights)
            yield trial, model.to(device)


def learn(job: Job) -> None:
    """Does one trial."""
    torch.set_num_threads(1)
    task: Task = torch.load(job.task, weights_only=False)  # what the parent wrote
    trial, model = run_trial(task, job.told, job.settings, job.seed, torch.device(job.device))
    torch.save((trial, model.cpu().state_dict()), job.found)


def classifier_looks(
    model: Classifier, tokens: Shaped[Tensor, "1 T *P"], positions: Int[Tensor, "1 T *axes"]
) -> tuple[RecordedAttention, ...]:
    """Gives the look of every layer, with all its heads; the model that runs is not touched."""
    copy: Any = deepcopy(model).eval()
    tape = Recorder()
    for number, layer in enumerate(copy.encoder.layers):
        tape.record_heads(layer.attention, "encoder", number)
    with torch.no_grad():
        copy(tokens, positions)
    return tuple(heard.attention_map() for heard in tape.recordings)


def class_weights(
    model: Classifier, tokens: Shaped[Tensor, "1 T *P"], positions: Int[Tensor, "1 T *axes"]
) -> Float[Tensor, "L H T"]:
    """Gives how much the pooled token looks at each other token, or where the pool is a mean, all tokens on average.

    What the pooled token keeps to itself is left out.
    """
    weights = torch.stack([look.weights() for look in classifier_looks(model, tokens, positions)])  # (L, H, Q, K)
    return weights.mean(dim=2) if model.own_token is None else weights[:, :, 0, 1:]

"""A classifier on the Transformer's encoder, and trials of it: training with one encoding and one seed."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from regard.batch import sequence_mask
from regard.build import NORM_FIRST, assemble_heads, build_part, refuse_meaningless
from regard.config import HeadsSettings, ModelSettings, PartSettings, choose
from regard.mask import Mask, padding
from regard.model.layers import Dropout, Embedding, FeedForward, Linear, make_table
from regard.model.multihead import check_sizes
from regard.model.norm import NORM, Residual
from regard.model.transformer import Encoder, EncoderLayer
from regard.padding import PAD
from regard.position import POSITION, Position
from regard.study.parallel import run_jobs
from regard.study.task import Encoding, Examples, Task, coordinates
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


EVAL_BATCH = 512
SHUFFLE_SEED = 12345  # of the control's order, the same in every trial


@dataclass(frozen=True)
class TaskSettings:
    """The model and its training."""

    model: ModelSettings
    learn: ExampleSettings
    pool: str = "class"
    base: float = 10000.0  # of the wavelengths, where an encoding has any; short axes need short waves


@dataclass(frozen=True)
class Trial:
    """Accuracies after one training; the model is that of the epoch with the best validation accuracy."""

    encoding: Encoding = field(metadata={"json": "told"})
    seed: int
    parameters: int
    valid: float
    test: float
    shuffled: float  # on the test, with the tokens of each example permuted while the positions stay
    lessons: list[EpochResult]


def run_trial(
    task: Task, encoding: Encoding, settings: TaskSettings, seed: int, device: torch.device
) -> tuple[Trial, Classifier]:
    """Train once, and keep the epoch with the best validation accuracy."""
    model = make_model(task, encoding, settings, seed).to(device)
    train, valid, test = (part.to(device) for part in (task.train, task.valid, task.test))
    draws = torch.Generator().manual_seed(seed)

    def loss(numbers: Tensor) -> Tensor:
        batch = train.some(numbers.to(device))
        if task.vary is not None:
            batch = replace(batch, tokens=task.vary(batch.tokens, draws))
        return F.cross_entropy(read(model, task, encoding, batch), batch.labels)

    def judge() -> float:
        return accuracy(model, task, encoding, valid)

    learn = replace(settings.learn, seed=seed)
    lessons = list(train_on_examples(model, len(train), loss, judge, learn))
    trial = Trial(
        encoding=encoding,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        valid=max(lesson.score for lesson in lessons),
        test=accuracy(model, task, encoding, test),
        shuffled=accuracy(model, task, encoding, test.shuffled(SHUFFLE_SEED)),
        lessons=lessons,
    )
    return trial, model


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


@dataclass(frozen=True)
class TrialJob:
    """One trial: what its process needs, and where it leaves its result."""

    encoding: Encoding
    seed: int
    settings: TaskSettings
    device: str
    task: Path
    result: Path


def run_trials(
    task: Task,
    encodings: Sequence[Encoding],
    settings: TaskSettings,
    seeds: Sequence[int],
    device: torch.device,
    n_parallel: int,
) -> Iterator[tuple[Trial, Classifier]]:
    """Train every encoding with every seed, `n_parallel` at a time with one thread each; yield each as it ends."""
    with TemporaryDirectory(prefix="regard-trials-") as name:
        folder = Path(name)
        torch.save(task, folder / "task.pt")
        chosen = enumerate((encoding, seed) for encoding in encodings for seed in seeds)
        about = settings, str(device), folder / "task.pt"
        jobs = [TrialJob(*each, *about, folder / f"{number}.pt") for number, each in chosen]
        for job, code in run_jobs(run_trial_job, jobs, n_parallel):
            if code:
                raise RuntimeError(f"training {job.encoding.name} with seed {job.seed} ended with exit code {code}")
            trial, weights = torch.load(job.result, weights_only=False)  # what our own process wrote
            model = make_model(task, job.encoding, settings, job.seed)
            model.load_state_dict(weights)
            yield trial, model.to(device)


def run_trial_job(job: TrialJob) -> None:
    """Run one trial in this process, and leave its result in a file."""
    torch.set_num_threads(1)
    task: Task = torch.load(job.task, weights_only=False)  # what the parent wrote
    trial, model = run_trial(task, job.encoding, job.settings, job.seed, torch.device(job.device))
    torch.save((trial, model.cpu().state_dict()), job.result)


def classifier_attention(
    model: Classifier, tokens: Shaped[Tensor, "1 T *P"], positions: Int[Tensor, "1 T *axes"]
) -> tuple[RecordedAttention, ...]:
    """Record the attention of every layer, on a copy of the model."""
    copy: Any = deepcopy(model).eval()
    recorder = Recorder()
    for number, layer in enumerate(copy.encoder.layers):
        recorder.record_heads(layer.attention, "encoder", number)
    with torch.no_grad():
        copy(tokens, positions)
    return tuple(recording.attention_map() for recording in recorder.recordings)


def class_weights(
    model: Classifier, tokens: Shaped[Tensor, "1 T *P"], positions: Int[Tensor, "1 T *axes"]
) -> Float[Tensor, "L H T"]:
    """Return how much the class token attends to each other token, or, for a mean pool, all tokens on average.

    The class token's weight on itself is left out.
    """
    weights = torch.stack([each.weights() for each in classifier_attention(model, tokens, positions)])  # (L, H, Q, K)
    return weights.mean(dim=2) if model.own_token is None else weights[:, :, 0, 1:]

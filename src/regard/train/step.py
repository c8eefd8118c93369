"""The optimiser, the learning-rate schedule, one step, and its capture as a CUDA graph."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.batch import Batch, BatchShape, unpack
from regard.config import TrainSettings
from regard.shapes import Float, Int
from regard.train.batching import StepBatches
from regard.train.distributed import World


def make_optimiser(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Return AdamW (arXiv:1711.05101); norms, biases and embeddings are not decayed.

    On a GPU the learning rate is a tensor on it, so that a captured step reads its current value.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = [p for p in model.parameters() if p.requires_grad]
    plain = [p for p in parameters if p.dim() < 2 or id(p) in tables]
    decayed = [p for p in parameters if not (p.dim() < 2 or id(p) in tables)]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    device = parameters[0].device
    on_gpu = device.type == "cuda"
    lr = torch.tensor(settings.lr, device=device) if on_gpu else settings.lr
    return torch.optim.AdamW(groups, lr=lr, betas=settings.betas, eps=1e-9, fused=True, capturable=on_gpu)


def set_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate, in place if it is a tensor."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def run_step(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Sequence[Batch | Int[Tensor, " B"]],
    scale: float | Float[Tensor, ""],
    settings: TrainSettings,
) -> Float[Tensor, ""]:
    """Take one optimiser step on some batches, and return this process's sum of −log p over its tokens.

    `scale` makes the sum of losses a mean over the tokens of all processes and batches, so that the gradients do not
    depend on how the tokens are divided among them.
    """
    optimiser.zero_grad(set_to_none=True)
    losses = []
    device = next(module.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        for batch in batches:
            loss, plain = module(batch)
            (loss * scale).backward()
            losses.append(plain)
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(module.parameters(), settings.clip)
    optimiser.step()
    return torch.stack(losses).sum()


AHEAD = 8  # steps that may be queued on the device

Step = Callable[[StepBatches, float], Tensor]  # from batches and a learning rate to the sum of −log p


@dataclass(frozen=True, eq=False)
class CapturedStep:
    """One step on batches of one shape as a graph: it reads `ids` and writes its sum of losses to `loss_sum`."""

    graph: torch.cuda.CUDAGraph
    ids: Int[Tensor, " N"]
    loss_sum: Float[Tensor, ""]


def make_step(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    settings: TrainSettings,
    world: World,
    device: torch.device,
    log: Callable[[str], None],
) -> Step:
    """Return the fastest step for the device: captured as a CUDA graph on a GPU, else eager."""
    plain = _plain_step(module, optimiser, settings, world, device)
    if device.type != "cuda":
        return plain
    if world.size > 1 or settings.accumulate > 1:
        why = "several processes" if world.size > 1 else f"train.accumulate {settings.accumulate}"
        log(f"running steps eagerly: with {why} they are not captured as CUDA graphs")
        return plain
    return CapturedSteps(module, optimiser, settings, plain, device, log)


def _plain_step(
    module: nn.Module, optimiser: torch.optim.Optimizer, settings: TrainSettings, world: World, device: torch.device
) -> Step:
    def step(step_batches: StepBatches, lr: float) -> Tensor:
        set_rate(optimiser, lr)
        batches = [part.batch(device, step_batches.n_tokens) for part in step_batches.parts]
        # DDP takes the mean over processes, hence the factor.
        return run_step(module, optimiser, batches, world.size / step_batches.n_tokens, settings)

    return step


class CapturedSteps:
    """Takes steps by replaying graphs, one for each shape (docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).

    The first step of a shape runs eagerly, which also warms up the libraries; the second is captured. All graphs share
    one memory pool, since no two run at once. Random numbers follow the seed set before each step, captured or not.
    """

    def __init__(
        self,
        module: nn.Module,
        optimiser: torch.optim.Optimizer,
        settings: TrainSettings,
        plain: Step,
        device: torch.device,
        log: Callable[[str], None],
    ):
        self.module = module
        self.optimiser = optimiser
        self.settings = settings
        self.plain = plain
        self.log = log
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.scale = torch.ones((), device=device)
        self.graphs: dict[BatchShape, CapturedStep | None] = {}
        self.capturable = True
        self.in_flight: deque[torch.Event] = deque()

    def __call__(self, batches: StepBatches, lr: float) -> Tensor:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss_sum = self._step(batches, lr)
            self._limit_lead()
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss_sum

    def _limit_lead(self) -> None:
        """Wait for an earlier step, so that the program is never far ahead of the device."""
        self.in_flight.append(self.stream.record_event())
        if len(self.in_flight) > AHEAD:
            self.in_flight.popleft().synchronize()

    def _step(self, batches: StepBatches, lr: float) -> Tensor:
        (part,) = batches.parts
        if not self.capturable or part.shape not in self.graphs:
            self.graphs.setdefault(part.shape, None)
            return self.plain(batches, lr)
        captured = self.graphs[part.shape] or self._capture(part.shape)
        if captured is None:
            return self.plain(batches, lr)
        set_rate(self.optimiser, lr)
        self.scale.fill_(1 / batches.n_tokens)
        captured.ids.copy_(part.ids, non_blocking=True)
        captured.graph.replay()
        return captured.loss_sum.clone()

    def _capture(self, shape: BatchShape) -> CapturedStep | None:
        """Capture a step on batches of one shape; if that fails, log it once and run eagerly from then on."""
        ids = torch.zeros(shape.rows * (shape.src + shape.tgt + 3), dtype=torch.int32, device=self.device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
                batch = unpack(ids, shape, False, 0)
                loss_sum = run_step(self.module, self.optimiser, [batch], self.scale, self.settings)
        except RuntimeError as error:
            self.capturable = False
            self.log(f"running steps eagerly: this model cannot be captured as a CUDA graph ({_first_line(error)})")
            return None
        self.graphs[shape] = CapturedStep(graph, ids, loss_sum)
        return self.graphs[shape]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def inverse_sqrt(step: int, settings: TrainSettings, seconds: float) -> float:
    """Rise linearly to 1 at `warmup`, then fall with the square root of the step (arXiv:1706.03762, 5.3)."""
    warmup = max(settings.warmup, 1)
    return min(step / warmup, math.sqrt(warmup / max(step, 1)))


def cosine(step: int, settings: TrainSettings, seconds: float) -> float:
    """Rise linearly to 1 at `warmup`, then fall along half a cosine to 0 at `max_steps` or `max_minutes`."""
    if step < settings.warmup:
        return step / settings.warmup
    shares = [0.0]
    if settings.max_steps is not None:
        shares.append((step - settings.warmup) / max(settings.max_steps - settings.warmup, 1))
    if settings.max_minutes is not None:
        shares.append(seconds / 60 / settings.max_minutes)
    return 0.5 * (1 + math.cos(math.pi * min(max(shares), 1.0)))


def constant(step: int, settings: TrainSettings, seconds: float) -> float:
    """Rise linearly to 1 at `warmup`, and stay there."""
    return min(step / max(settings.warmup, 1), 1.0)


SCHEDULE: dict[str, Callable[[int, TrainSettings, float], float]] = {
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "constant": constant,
}


def learning_rate(step: int, settings: TrainSettings, seconds: float = 0.0) -> float:
    """Return the learning rate of a step, counted from 1; `seconds` is the time since the run began."""
    return settings.lr * SCHEDULE[settings.schedule](step, settings, seconds)


def check_schedule(settings: TrainSettings) -> None:
    """Raise ValueError for a schedule without an end."""
    if settings.schedule == "cosine" and settings.max_steps is None and settings.max_minutes is None:
        raise ValueError("train.schedule 'cosine' needs train.max_steps or train.max_minutes as its end, got neither")

"""Steps on a GPU as captured graphs: one launch instead of thousands."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import Shape, unpack
from regard.config import TrainSettings
from regard.train.distributed import Team
from regard.train.feed import Group
from regard.train.step import run_step, set_rate

AHEAD = 8  # steps that the device may still have to do

Step = Callable[[Group, float], Tensor]  # from batches and a learning rate to the sum of −log p


@dataclass(frozen=True, eq=False)
class Captured:
    """One step on batches of one shape, recorded: it reads `ids` and leaves its sum of losses in `told`."""

    graph: torch.cuda.CUDAGraph
    ids: Int[Tensor, " N"]
    told: Float[Tensor, ""]


def make_step(
    learner: nn.Module,
    optimiser: torch.optim.Optimizer,
    settings: TrainSettings,
    team: Team,
    device: torch.device,
    say: Callable[[str], None],
) -> Step:
    """Gives the quickest way to take a step here: captured on a GPU, else one operation at a time."""
    plain = _plain_step(learner, optimiser, settings, team, device)
    if device.type != "cuda":
        return plain
    if team.world > 1 or settings.accumulate > 1:
        why = "several processes" if team.world > 1 else f"train.accumulate {settings.accumulate}"
        say(f"steps run one operation at a time: with {why} they are not captured")
        return plain
    return CapturedSteps(learner, optimiser, settings, plain, device, say)


def _plain_step(
    learner: nn.Module, optimiser: torch.optim.Optimizer, settings: TrainSettings, team: Team, device: torch.device
) -> Step:
    def step(group: Group, lr: float) -> Tensor:
        set_rate(optimiser, lr)
        batches = [part.batch(device, group.n_tokens) for part in group.parts]
        # DDP takes the mean over processes, hence the factor.
        return run_step(learner, optimiser, batches, team.world / group.n_tokens, settings)

    return step


class CapturedSteps:
    """Takes steps by replaying graphs, one for each shape (docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).

    A shape that comes for the first time runs one operation at a time, which also warms the libraries up; the second
    time it is captured. All graphs share one pool of memory, since no two run at once. Random numbers follow the seed
    that is set before each step, captured or not.
    """

    def __init__(
        self,
        learner: nn.Module,
        optimiser: torch.optim.Optimizer,
        settings: TrainSettings,
        plain: Step,
        device: torch.device,
        say: Callable[[str], None],
    ):
        self.learner = learner
        self.optimiser = optimiser
        self.settings = settings
        self.plain = plain
        self.say = say
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.scale = torch.ones((), device=device)
        self.graphs: dict[Shape, Captured | None] = {}
        self.capturable = True
        self.under_way: deque[torch.Event] = deque()

    def __call__(self, group: Group, lr: float) -> Tensor:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            told = self._step(group, lr)
            self._keep_pace()
        torch.cuda.current_stream().wait_stream(self.stream)
        return told

    def _keep_pace(self) -> None:
        """Waits for a step of some time ago, so that the program is never far ahead of the device."""
        self.under_way.append(self.stream.record_event())
        if len(self.under_way) > AHEAD:
            self.under_way.popleft().synchronize()

    def _step(self, group: Group, lr: float) -> Tensor:
        (part,) = group.parts
        if not self.capturable or part.shape not in self.graphs:
            self.graphs.setdefault(part.shape, None)
            return self.plain(group, lr)
        captured = self.graphs[part.shape] or self._captured(part.shape)
        if captured is None:
            return self.plain(group, lr)
        set_rate(self.optimiser, lr)
        self.scale.fill_(1 / group.n_tokens)
        captured.ids.copy_(part.ids, non_blocking=True)
        captured.graph.replay()
        return captured.told.clone()

    def _captured(self, shape: Shape) -> Captured | None:
        """Records a step on batches of one shape; what cannot be recorded is said once, and runs as before."""
        ids = torch.zeros(shape.rows * (shape.src + shape.tgt + 3), dtype=torch.int32, device=self.device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, self.pool, self.stream, capture_error_mode="thread_local"):
                batch = unpack(ids, shape, False, 0)
                told = run_step(self.learner, self.optimiser, [batch], self.scale, self.settings)
        except RuntimeError as error:
            self.capturable = False
            self.say(f"steps run one operation at a time: this model cannot be captured ({_first_line(error)})")
            return None
        self.graphs[shape] = Captured(graph, ids, told)
        return self.graphs[shape]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]

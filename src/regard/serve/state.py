"""What lives as long as the server; cached traces."""

from collections import OrderedDict
from dataclasses import dataclass, field
from secrets import token_urlsafe
from threading import Lock

from torch import Tensor

from regard.pipeline import load_generator
from regard.qa.model import load_reader
from regard.serve import NotFoundError
from regard.serve.batching import BatchQueue
from regard.serve.jobs import JobPool
from regard.serve.middleware import Metrics
from regard.serve.models import LazyModels, ModelRegistry, folder_name
from regard.serve.server import ServeSettings
from regard.trace.attention import AttentionMap, RecordedAttention
from regard.trace.summary import HeadChoice
from regard.trace.trace import Trace

MAX_PATHS = 4  # of one run, besides its best


@dataclass(eq=False)
class TraceRun:
    """The traces of a text's parts, with the latest other paths that were requested."""

    model: str
    traces: tuple[Trace, ...]
    aligning: HeadChoice | None = None
    others: OrderedDict[tuple[int, int], Trace] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def trace(self, part: int = 0, node: int | None = None) -> Trace:
        """Return the path to a node, by default the best; other paths are replayed when first requested."""
        if not 0 <= part < len(self.traces):
            raise ValueError(f"part must be between 0 and {len(self.traces) - 1}, got {part}")
        best = self.traces[part]
        if node is None or node == best.end_node:
            return best
        with self.lock:
            if (part, node) not in self.others:
                self.others[part, node] = best.at(node)
            self.others.move_to_end((part, node))
            while len(self.others) > MAX_PATHS:
                self.others.popitem(last=False)
            return self.others[part, node]

    def n_bytes(self) -> int:
        """Return the size of its tensors, as if all other paths were cached too."""
        return sum(_attention_bytes(attention_map) for trace in self.traces for attention_map in trace.attention) * (
            1 + MAX_PATHS
        )


class TraceCache:
    """The most recently used runs, up to a number and a size; thread-safe."""

    def __init__(self, n_runs: int, n_bytes: int):
        self.n_runs = n_runs
        self.n_bytes = n_bytes
        self._runs: OrderedDict[str, TraceRun] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: TraceRun) -> str:
        """Cache a run, and return an id that cannot be guessed."""
        id = token_urlsafe(16)
        with self._lock:
            self._runs[id] = run
            n_bytes = sum(each.n_bytes() for each in self._runs.values())
            while len(self._runs) > 1 and (len(self._runs) > self.n_runs or n_bytes > self.n_bytes):
                n_bytes -= self._runs.popitem(last=False)[1].n_bytes()
        return id

    def get(self, id: str) -> TraceRun:
        """Return a cached run."""
        with self._lock:
            if id not in self._runs:
                raise NotFoundError("this trace is no longer cached: request it again with POST /trace")
            self._runs.move_to_end(id)
            return self._runs[id]


def _attention_bytes(attention_map: AttentionMap) -> int:
    if not isinstance(attention_map, RecordedAttention):
        return 0
    tensors = (
        attention_map.q,
        attention_map.k,
        attention_map.v,
        attention_map.out,
        attention_map.extra,
        attention_map.bias,
    )
    parts = () if attention_map.parts is None else (attention_map.parts.q, attention_map.parts.k)
    return sum(x.numel() * x.element_size() for x in (*tensors, *parts) if isinstance(x, Tensor))


class ServerState:
    """What lives as long as the server: models, the threads that use them, cached traces and metrics."""

    def __init__(self, models: ModelRegistry, settings: ServeSettings):
        self.models = models
        self.settings = settings
        self.metrics = Metrics()
        self.queue = BatchQueue(models, settings, self.metrics)
        self.jobs = JobPool(settings.max_jobs)
        self.readers = LazyModels("reader", {folder_name(each): each for each in settings.readers}, load_reader)
        self.writers = LazyModels("writer", {folder_name(each): each for each in settings.writers}, load_generator)
        self.traces = TraceCache(settings.cached_traces, settings.cached_bytes)
        self.metrics.gauges |= {
            "regard_waiting_texts": lambda: len(self.queue),
            "regard_waiting_looks": lambda: len(self.jobs),
            "regard_kept_traces": lambda: len(self.traces),
        }

    def open(self) -> None:
        """Start the threads."""
        self.queue.open()

    def close(self) -> None:
        """Cancel what waits, and let the threads finish their current work."""
        self.queue.close()
        self.jobs.close()

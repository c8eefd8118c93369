"""What lives as long as the server; cached traces."""

from collections import OrderedDict
from dataclasses import dataclass, field
from secrets import token_urlsafe
from threading import Lock

from torch import Tensor

from regard.serve.batching import BatchQueue
from regard.serve.jobs import Looking
from regard.serve.middleware import Metrics
from regard.serve.models import Library, Shelf, load_reader, load_writer
from regard.serve.requests import UnknownError
from regard.serve.server import ServeSettings
from regard.trace.attention import Look, RecordedLook
from regard.trace.summary import Choice
from regard.trace.trace import Trace

MOST_PATHS = 4  # of one run, besides its best


@dataclass(eq=False)
class Run:
    """The traces of one text's parts, and of other paths that were asked for."""

    model: str
    traces: tuple[Trace, ...]
    aligning: Choice | None = None
    others: OrderedDict[tuple[int, int], Trace] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def trace(self, part: int = 0, node: int | None = None) -> Trace:
        """Gives the path to a node, the best where none is named; another path is read again when first asked for."""
        if not 0 <= part < len(self.traces):
            raise ValueError(f"part must lie in 0 … {len(self.traces) - 1}, got {part}")
        best = self.traces[part]
        if node is None or node == best.leaf:
            return best
        with self.lock:
            if (part, node) not in self.others:
                self.others[part, node] = best.of(node)
            self.others.move_to_end((part, node))
            while len(self.others) > MOST_PATHS:
                self.others.popitem(last=False)
            return self.others[part, node]

    def n_bytes(self) -> int:
        """Counts what its looks hold, as if all other paths were there too."""
        return sum(_look_bytes(look) for trace in self.traces for look in trace.looks) * (1 + MOST_PATHS)


class Kept:
    """A bounded number of runs, the oldest forgotten first; any thread may ask."""

    def __init__(self, n_runs: int, n_bytes: int):
        self.n_runs = n_runs
        self.n_bytes = n_bytes
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Run) -> str:
        """Keeps a run, and gives the name that nobody can guess."""
        name = token_urlsafe(16)
        with self._lock:
            self._runs[name] = run
            held = sum(each.n_bytes() for each in self._runs.values())
            while len(self._runs) > 1 and (len(self._runs) > self.n_runs or held > self.n_bytes):
                held -= self._runs.popitem(last=False)[1].n_bytes()
        return name

    def get(self, name: str) -> Run:
        """Gives a run that is still kept."""
        with self._lock:
            if name not in self._runs:
                raise UnknownError("this trace is not kept any more: ask for it again by POST /trace")
            self._runs.move_to_end(name)
            return self._runs[name]


def _look_bytes(look: Look) -> int:
    if not isinstance(look, RecordedLook):
        return 0
    held = (look.q, look.k, look.v, look.out, look.extra, look.bias)
    parts = () if look.parts is None else (look.parts.q, look.parts.k)
    return sum(x.numel() * x.element_size() for x in (*held, *parts) if isinstance(x, Tensor))


class House:
    """The models, the threads that use them, the traces that are kept, and what is counted."""

    def __init__(self, shelf: Shelf, settings: ServeSettings):
        self.shelf = shelf
        self.settings = settings
        self.metrics = Metrics()
        self.desk = BatchQueue(shelf, settings, self.metrics)
        self.looking = Looking(settings.max_looking)
        self.readers = Library("reader", settings.readers, load_reader)
        self.writers = Library("writer", settings.writers, load_writer)
        self.kept = Kept(settings.kept_traces, settings.kept_bytes)
        self.metrics.gauges |= {
            "regard_waiting_texts": lambda: len(self.desk),
            "regard_waiting_looks": lambda: len(self.looking),
            "regard_kept_traces": lambda: len(self.kept),
        }

    def open(self) -> None:
        """Begins to work."""
        self.desk.open()

    def close(self) -> None:
        """Lets the threads finish what they do now."""
        self.desk.close()
        self.looking.close()

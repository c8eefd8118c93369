"""What lives as long as the server: background jobs, streams, cached traces."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from secrets import token_urlsafe
from threading import Lock
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse
from torch import Tensor

from regard.pipeline import load_generator
from regard.qa.model import load_reader
from regard.serve import BusyError, DisconnectedError, NotFoundError, ServeSettings
from regard.serve.batching import BatchQueue
from regard.serve.middleware import Metrics
from regard.serve.models import LazyModels, ModelRegistry, folder_name
from regard.serve.requests import INTERNAL, STATUS
from regard.trace.attention import AttentionMap, RecordedAttention
from regard.trace.summary import HeadChoice
from regard.trace.trace import Trace

T = TypeVar("T")
N_THREADS = 2  # so that one long trace does not block everybody else
NDJSON = "application/x-ndjson"


class JobPool:
    """Threads for traces and lessons, with a bounded number of pending jobs."""

    def __init__(self, max_pending: int):
        self.max_pending = max_pending
        self._pending: set[Future] = set()
        self._pool = ThreadPoolExecutor(N_THREADS, "jobs")

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue a job; raise BusyError if too many are pending. Not thread-safe: the event loop calls it."""
        if len(self._pending) >= self.max_pending:
            raise BusyError(f"{len(self._pending)} jobs are waiting already: try again in a moment")
        job = self._pool.submit(work)
        self._pending.add(job)
        job.add_done_callback(self._pending.discard)
        return job

    async def run(self, request: Request, work: Callable[[], T]) -> T:
        """Run a job and return its result; cancel it if the client disconnects while it waits."""
        return (await wait_for(request, self.submit(work)))[0]

    def close(self) -> None:
        """Cancel what waits, and end the threads after their current jobs."""
        self._pool.shutdown(cancel_futures=True)


async def wait_for(request: Request, *futures: Future[T]) -> list[T]:
    """Return the results of all futures; cancel them if the client disconnects first."""
    results = asyncio.gather(*(asyncio.wrap_future(future) for future in futures))
    disconnected = asyncio.ensure_future(_disconnected(request))
    try:
        done, _ = await asyncio.wait({results, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if results in done:
            return results.result()
        raise DisconnectedError("the client has disconnected")
    finally:
        disconnected.cancel()
        results.cancel()  # and with it all futures


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class LineStream:
    """A queue of lines from a thread to the event loop in which it was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | BaseException | None] = asyncio.Queue()
        self._disconnected = False

    def write(self, line: str) -> None:
        """Send a line from the thread; raise DisconnectedError, which ends its work, if nobody reads any more."""
        if self._disconnected:
            raise DisconnectedError("the client has disconnected")
        self._loop.call_soon_threadsafe(self._queue.put_nowait, line)

    def end(self, work: Future[Any]) -> None:
        """End the stream when the work is done, with its error if it failed."""
        error = DisconnectedError("the job was cancelled") if work.cancelled() else work.exception()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, error)

    async def next(self) -> str | None:
        """Wait for the next line, None at the end; raise what the work raised."""
        line = await self._queue.get()
        if isinstance(line, BaseException):
            raise line
        return line

    async def all(self, first: str | None) -> AsyncIterator[str]:
        """Yield all lines from the first on; closing the iterator marks the client as disconnected."""
        try:
            line = first
            while line is not None:
                yield line
                line = await self.next()
        finally:
            self._disconnected = True


async def stream_response(lines: LineStream, error_line: Callable[[str], str]) -> StreamingResponse:
    """Respond with the lines; an error before the first line sets the status, a later one becomes the last line."""
    first = await lines.next()
    return StreamingResponse(_with_error_line(lines.all(first), error_line), media_type=NDJSON)


async def _with_error_line(lines: AsyncIterator[str], error_line: Callable[[str], str]) -> AsyncIterator[str]:
    try:
        async for line in lines:
            yield line
    except Exception as error:
        expected = type(error) in STATUS
        yield error_line(str(error) if expected else INTERNAL) + "\n"
        if not expected:
            raise


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

"""What lives as long as the server: background jobs, streams, cached traces."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse

from regard.extras import needed_by
from regard.pipeline import load_generator
from regard.serve import BusyError, DisconnectedError, LateError, NotFoundError, ServeSettings
from regard.serve.batching import BatchQueue
from regard.serve.memory import MemoryTrimmer
from regard.serve.middleware import Metrics
from regard.serve.models import LazyModels, ModelRegistry, folder_name
from regard.serve.requests import INTERNAL, STATUS
from regard.trace.head_choice import HeadChoice
from regard.trace.trace import Trace

if TYPE_CHECKING:
    from regard.qa.model import QuestionReader

T = TypeVar("T")
N_THREADS = 4  # so that some long streams do not block everybody else
NDJSON = "application/x-ndjson"


class Waiter:
    """Waits for results on behalf of clients: until they leave, the server stops, or it has taken too long."""

    def __init__(self, max_seconds: float):
        self.max_seconds = max_seconds
        self.stopping = asyncio.Event()

    async def results(self, request: Request, *futures: asyncio.Future[T] | Future[T]) -> list[T]:
        """Return the results of all futures; cancel them if nobody waits any longer."""
        wrapped = (asyncio.wrap_future(each) if isinstance(each, Future) else each for each in futures)
        results = asyncio.gather(*wrapped)
        results.add_done_callback(_retrieve)
        disconnected = asyncio.ensure_future(_disconnected(request))
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            done, _ = await asyncio.wait(
                {results, disconnected, stopping}, timeout=self.max_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if results in done and not results.cancelled():
                return results.result()
            if disconnected in done:
                raise DisconnectedError("the client has disconnected")
            if done:
                raise BusyError(STOPPING)
            raise LateError(self.too_late())
        finally:
            for each in (disconnected, stopping, results):  # and with the results all futures
                each.cancel()

    def too_late(self) -> str:
        """Say that a request took too long."""
        return f"the work took more than {self.max_seconds:g} seconds: send a shorter text, or use a smaller beam"


STOPPING = "the server is stopping: try again in a moment"


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more, lest asyncio complain."""
    if not future.cancelled():
        future.exception()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


Write = Callable[[str], None]


class JobPool:
    """Threads for traces and lessons, with a bounded number of pending jobs."""

    def __init__(self, max_pending: int, waiter: Waiter):
        self.max_pending = max_pending
        self.waiter = waiter
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
        return (await self.waiter.results(request, self.submit(work)))[0]

    async def stream(
        self, request: Request, work: Callable[[Write], None], error_line: Callable[[str], str]
    ) -> StreamingResponse:
        """Respond with the lines that a job writes.

        An error before the first line sets the status, a later one becomes the last line.
        """
        lines = LineStream(self.waiter)
        job = self.submit(lambda: work(lines.write))
        job.add_done_callback(lines.end)
        try:
            (first,) = await self.waiter.results(request, asyncio.ensure_future(lines.next()))
        except Exception:
            lines.close()
            job.cancel()
            raise
        return StreamingResponse(_with_error_line(lines.all(first), error_line), media_type=NDJSON)

    def close(self) -> None:
        """Cancel what waits; threads end after their current jobs."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class LineStream:
    """A queue of lines from a thread to the event loop in which it was made."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._late = time.monotonic() + waiter.max_seconds
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | BaseException | None] = asyncio.Queue()
        self._disconnected = False

    def write(self, line: str) -> None:
        """Send a line from the thread; raise what ends its work if nobody reads any more, or it takes too long."""
        if self._disconnected:
            raise DisconnectedError("the client has disconnected")
        if self._waiter.stopping.is_set():
            raise BusyError(STOPPING)
        if time.monotonic() > self._late:
            raise LateError(self._waiter.too_late())
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
                await asyncio.sleep(0)  # lines may come in a burst, and a client's leaving must be noticed
                line = await self.next()
        finally:
            self.close()

    def close(self) -> None:
        """End the work at its next line: nobody reads any more."""
        self._disconnected = True


async def _with_error_line(lines: AsyncIterator[str], error_line: Callable[[str], str]) -> AsyncIterator[str]:
    try:
        async for line in lines:
            yield line
    except Exception as error:
        expected = type(error) in STATUS
        yield error_line(str(error) if expected else INTERNAL) + "\n"
        if not expected:
            raise


MAX_TRACES = 5  # of one run: the best paths of its parts, and others that were requested


@dataclass(eq=False)
class TraceRun:
    """The latest traces of a text's parts, each made when it is first requested."""

    model: str
    n_parts: int
    make: Callable[[int], Trace]  # the best path of a part
    aligning: Callable[[Trace], HeadChoice | None] = lambda trace: None  # the heads that align words best
    n_bytes: int = 0  # of all its tensors, were as many traces cached as may be
    traces: OrderedDict[tuple[int, int | None], Trace] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def trace(self, part: int = 0, node: int | None = None) -> Trace:
        """Return the path to a node, by default the best."""
        if not 0 <= part < self.n_parts:
            raise ValueError(f"part must be between 0 and {self.n_parts - 1}, got {part}")
        with self.lock:
            best = self._cached((part, None), lambda: self.make(part))
            if node is None or node == best.end_node:
                return best
            return self._cached((part, node), partial(best.at, node))

    def _cached(self, key: tuple[int, int | None], make: Callable[[], Trace]) -> Trace:
        if key not in self.traces:
            trace = self.traces[key] = make()
            self.n_bytes = max(self.n_bytes, MAX_TRACES * sum(each.n_bytes for each in trace.attention))
        self.traces.move_to_end(key)
        while len(self.traces) > MAX_TRACES:
            self.traces.popitem(last=False)
        return self.traces[key]


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
            self._evict()
        return id

    def _evict(self) -> None:
        n_bytes = sum(each.n_bytes for each in self._runs.values())
        while len(self._runs) > 1 and (len(self._runs) > self.n_runs or n_bytes > self.n_bytes):
            n_bytes -= self._runs.popitem(last=False)[1].n_bytes

    def get(self, id: str) -> TraceRun:
        """Return a cached run."""
        with self._lock:
            if id not in self._runs:
                raise NotFoundError("this trace is no longer cached: request it again with POST /trace")
            self._runs.move_to_end(id)
            self._evict()  # runs grow while they are looked at
            return self._runs[id]


def load_pytorch() -> ModuleType:
    """Return what routes compute with PyTorch, which is imported when one first needs it."""
    with needed_by("this route"):
        from regard.serve import pytorch

    return pytorch


def _load_reader(folder: Path) -> "QuestionReader":
    return load_pytorch().load_reader(folder)


class ServerState:
    """What lives as long as the server: models, the threads that use them, cached traces and metrics."""

    def __init__(self, models: ModelRegistry, settings: ServeSettings):
        self.models = models
        self.settings = settings
        self.metrics = Metrics()
        self.queue = BatchQueue(models, settings, self.metrics)
        self.waiter = Waiter(settings.max_seconds)
        self.jobs = JobPool(settings.max_jobs, self.waiter)
        self.readers = LazyModels("reader", {folder_name(each): each for each in settings.readers}, _load_reader)
        self.writers = LazyModels("writer", {folder_name(each): each for each in settings.writers}, load_generator)
        self.traces = TraceCache(settings.cached_traces, settings.cached_bytes)
        self.trimmer = MemoryTrimmer()
        self.metrics.gauges |= {
            "regard_waiting_texts": lambda: len(self.queue),
            "regard_waiting_looks": lambda: len(self.jobs),
            "regard_kept_traces": lambda: len(self.traces),
        }

    def open(self) -> None:
        """Start the threads."""
        self.queue.open()
        self.trimmer.open()

    def stop(self) -> None:
        """Tell those who wait that the server is stopping."""
        self.waiter.stopping.set()

    def close(self) -> None:
        """Cancel what waits, and let the threads finish their current work."""
        self.stop()
        self.queue.close()
        self.jobs.close()
        self.trimmer.close()

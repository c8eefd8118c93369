"""Background jobs and streaming."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse

from regard.serve import BusyError, DisconnectedError
from regard.serve.requests import INTERNAL, STATUS

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

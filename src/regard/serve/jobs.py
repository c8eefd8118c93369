"""Background jobs and streaming."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse

from regard.serve.requests import STATUS, BusyError, GoneError

T = TypeVar("T")


class Looking:
    """Two threads, so that nobody waits for one long look, and a bounded number of questions that wait for them."""

    def __init__(self, most: int):
        self.most = most
        self._pending: set[Future] = set()
        self._pool = ThreadPoolExecutor(2, "looking")

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Lets a question wait; raises BusyError where too many do. Called by one thread."""
        if len(self._pending) >= self.most:
            raise BusyError(f"{len(self._pending)} questions are waiting already: come back in a moment")
        answer = self._pool.submit(work)
        self._pending.add(answer)
        answer.add_done_callback(self._pending.discard)
        return answer

    def close(self) -> None:
        """Ends the thread after what it does now."""
        self._pool.shutdown(cancel_futures=True)


async def unless_gone(request: Request, *answers: Future[T]) -> list[T]:
    """Waits for answers as long as the client does; a client that goes away takes its questions back."""
    work = asyncio.gather(*(asyncio.wrap_future(answer) for answer in answers))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        done, _ = await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work in done:
            return work.result()
        raise GoneError("nobody waits for the answer any more")
    finally:
        gone.cancel()
        work.cancel()  # and with it all answers


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Lines:
    """A queue between a thread and the event loop in which it was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | BaseException | None] = asyncio.Queue()
        self._gone = False

    def write(self, line: str) -> None:
        """Hands a line over; raises GoneError where nobody reads any more. Called by the thread."""
        if self._gone:
            raise GoneError("nobody reads any more")
        self._loop.call_soon_threadsafe(self._queue.put_nowait, line)

    def end(self, work: Future[Any]) -> None:
        """Ends the lines with what became of the work."""
        what = GoneError("the work was given up") if work.cancelled() else work.exception()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, what)

    async def next(self) -> str | None:
        """Waits for a line, or for the end; raises what the work raised."""
        line = await self._queue.get()
        if isinstance(line, BaseException):
            raise line
        return line

    async def all(self, first: str | None) -> AsyncIterator[str]:
        """Gives all lines; whoever stops asking has gone."""
        try:
            line = first
            while line is not None:
                yield line
                line = await self.next()
        finally:
            self._gone = True


NDJSON = "application/x-ndjson"


async def streamed(lines: Lines, failed: Callable[[str], str]) -> StreamingResponse:
    """Answers with the lines; what is wrong from the beginning is answered as such, what fails later by a last line."""
    first = await lines.next()
    return StreamingResponse(_told(lines.all(first), failed), media_type=NDJSON)


async def _told(lines: AsyncIterator[str], failed: Callable[[str], str]) -> AsyncIterator[str]:
    try:
        async for line in lines:
            yield line
    except Exception as error:
        known = type(error) in STATUS
        yield failed(str(error) if known else "something went wrong here; the server's log says what") + "\n"
        if not known:
            raise

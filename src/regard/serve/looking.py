"""Work that is done for one client at a time: traces and lessons."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from regard.serve.errors import BusyError, GoneError

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

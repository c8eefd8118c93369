"""Lines that one thread writes while a client reads them."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

from regard.serve.errors import GoneError


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

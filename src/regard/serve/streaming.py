"""Answers that come line by line while a thread works."""

from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse

from regard.serve.failures import STATUS
from regard.serve.lines import Lines

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

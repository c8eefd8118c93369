"""What may go wrong on a server."""

import logging

LOG = logging.getLogger("regard.serve")


class BusyError(Exception):
    """There is more to do than a server should promise."""


class TooLargeError(Exception):
    """More was asked for than a server takes."""


class UnknownError(Exception):
    """What was asked for is not here, or no longer."""


class BrokenError(Exception):
    """Something of the server's own is not as it should be; its log says what."""


class GoneError(Exception):
    """Nobody waits for the answer any more."""


def told(error: Exception) -> Exception:
    """Gives what clients are told about a translation that failed; what is not theirs to know is logged."""
    if isinstance(error, (ValueError, BrokenError)):
        return error
    LOG.error("a translation failed", exc_info=error)
    return BrokenError("the translation failed; the server's log says why")

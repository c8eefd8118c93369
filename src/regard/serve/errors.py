"""What may go wrong on a server."""


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

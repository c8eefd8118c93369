"""HTTP and the built page: where the page is, and the errors of this room."""

from pathlib import Path

PAGE = Path(__file__).parent / "page"
UNBUILT = "the page is not built in this copy: run make page, which needs no Node installed"


class BusyError(Exception):
    """Too many texts or jobs are waiting."""


class TooLargeError(Exception):
    """A request exceeds a limit of this server."""


class NotFoundError(Exception):
    """What was requested does not exist, or no longer."""


class InternalError(Exception):
    """The server failed; its message is safe to show, and the log has the details."""


class DisconnectedError(Exception):
    """The client disconnected before the response was complete."""

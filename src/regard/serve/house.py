"""Everything that lives as long as a server does."""

from regard.serve.desk import Desk
from regard.serve.kept import Kept
from regard.serve.library import Library, load_reader, load_writer
from regard.serve.looking import Looking
from regard.serve.metrics import Metrics
from regard.serve.settings import ServeSettings
from regard.serve.shelf import Shelf


class House:
    """The models, the threads that use them, the traces that are kept, and what is counted."""

    def __init__(self, shelf: Shelf, settings: ServeSettings):
        self.shelf = shelf
        self.settings = settings
        self.metrics = Metrics()
        self.desk = Desk(shelf, settings, self.metrics)
        self.looking = Looking(settings.max_looking)
        self.readers = Library("reader", settings.readers, load_reader)
        self.writers = Library("writer", settings.writers, load_writer)
        self.kept = Kept(settings.kept_traces, settings.kept_bytes)
        self.metrics.gauges |= {
            "regard_waiting_texts": lambda: len(self.desk),
            "regard_waiting_looks": lambda: len(self.looking),
            "regard_kept_traces": lambda: len(self.kept),
        }

    def open(self) -> None:
        """Begins to work."""
        self.desk.open()

    def close(self) -> None:
        """Lets the threads finish what they do now."""
        self.desk.close()
        self.looking.close()

"""Counts and clocks of a running server, in Prometheus's text format."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(eq=False)
class Histogram:
    """How many values lie below each bound."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Counts a value."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Writes the counts as Prometheus reads them: each bound with all below it."""
        before = f"{labels}," if labels else ""
        counts = list(accumulate(self.counts or [0] * (len(self.bounds) + 1)))
        bounds = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        rows = [f'{name}_bucket{{{before}le="{le}"}} {n}' for le, n in zip(bounds, counts, strict=True)]
        named = f"{{{labels}}}" if labels else ""
        return [*rows, f"{name}_sum{named} {self.total:.6f}", f"{name}_count{named} {counts[-1]}"]


class Metrics:
    """All that is counted; any thread may count."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._batches = Histogram(TEXTS)
        self._translated = 0
        self._dropped = 0
        self.gauges: dict[str, Callable[[], int]] = {}

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts an answer; a route is a pattern, so that there are few of them."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds.setdefault(route, Histogram(SECONDS)).observe(seconds)

    def together(self, n_texts: int) -> None:
        """Counts texts that are translated together: a batch, or the sentences in slots that take a turn."""
        with self._lock:
            self._batches.observe(float(n_texts))

    def done(self, n_texts: int) -> None:
        """Counts texts that were translated."""
        with self._lock:
            self._translated += n_texts

    def drop(self, n_texts: int) -> None:
        """Counts texts for which nobody waited any more."""
        with self._lock:
            self._dropped += n_texts

    def text(self) -> str:
        """Writes everything down."""
        with self._lock:
            lines = _family("regard_requests_total", "counter", "Answers by route and status.")
            for (method, route, status), n in sorted(self._requests.items()):
                labels = f'method="{method}",route="{route}",status="{status}"'
                lines.append(f"regard_requests_total{{{labels}}} {n}")
            lines += _family("regard_request_seconds", "histogram", "Time from a request's arrival to its answer.")
            for route, seconds in sorted(self._seconds.items()):
                lines += seconds.lines("regard_request_seconds", f'route="{route}"')
            lines += _family("regard_batch_texts", "histogram", "Texts that were translated together.")
            lines += self._batches.lines("regard_batch_texts")
            for name, n, words in (
                ("regard_texts_total", self._translated, "Texts that were translated."),
                ("regard_dropped_texts_total", self._dropped, "Texts that were given up because nobody waited."),
            ):
                lines += [*_family(name, "counter", words), f"{name} {n}"]
        for name, now in self.gauges.items():
            lines += [*_family(name, "gauge", "Number at this moment."), f"{name} {now()}"]
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]

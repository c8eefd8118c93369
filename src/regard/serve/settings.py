"""How much a server takes, and how long it waits."""

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ServeSettings:
    """Limits are for one request unless they say otherwise."""

    max_chars: int = 20_000  # of all its texts together
    max_texts: int = 256
    max_pieces: int = 400  # that a writer writes
    max_trace_chars: int = 2_000  # of a text that is looked into
    max_beam: int = 16
    max_body: int = 2**20  # bytes
    body_seconds: float = 10.0  # for a whole body to arrive
    head_seconds: float = 10.0  # for a request's first lines to arrive, and for an answer to be read on
    max_requests: int = 512  # at once
    max_waiting: int = 4_096  # texts of all requests
    max_looking: int = 32  # traces and lessons of all requests
    batch_texts: int = 64  # translated together; 1 translates each by itself
    batch_chars: int = 8_192
    batch_seconds: float = 0.002  # that a first text waits for others
    kept_traces: int = 32
    kept_bytes: int = 2**29  # of all kept traces
    # That translate at the same time, on half of the machine: the rest is for looking, and for the connections.
    workers: int = field(default_factory=lambda: max(1, min((os.cpu_count() or 1) // 2, 4)))
    threads: int = 1  # of each of them: several workers of one thread do more than one of several
    studies: tuple[Path, ...] = ()  # folders of studies that the page shows
    readers: tuple[Path, ...] = ()  # folders of readers that answer questions
    writers: tuple[Path, ...] = ()  # folders of models that write text
    cors: tuple[str, ...] = ()  # origins whose pages may ask
    hosts: tuple[str, ...] = ()  # names by which the server may be called; none are any

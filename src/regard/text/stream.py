"""The bytes of a file, decompressed by its ending."""

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

COMPRESSED = (".gz", ".xz", ".zst")
BLOCK = 1 << 17
# What the libraries raise when a file is broken off, damaged or none of theirs.
DAMAGE = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


@contextmanager
def open_bytes(source: str) -> Iterator[io.BufferedIOBase]:
    """Opens a path, or standard input for `-`, as a buffered stream of its decompressed bytes."""
    if source == "-":
        yield cast(io.BufferedIOBase, sys.stdin.buffer)
        return
    check_file(source)
    with _readable(source) as raw:
        try:
            yield _decompressed(raw, Path(source).suffix.lower())
        except DAMAGE as error:
            raise ValueError(
                f"{source}: the compressed file must be whole, got {error}; copy it again, or give the file that "
                "its ending promises"
            ) from error


def check_file(source: str) -> None:
    """Raises ValueError unless there is a file to read."""
    path = Path(source)
    if path.is_dir():
        raise ValueError(f"{source}: a source must be a file, got a folder; name the files in it")
    if not path.exists():
        raise ValueError(f"{source}: no such file; a source is a path, two paths joined by a comma, or -")


def ending(source: str) -> str:
    """Gives the ending that tells the format: the one before a compression's."""
    path = Path(source.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def _readable(source: str) -> io.BufferedReader:
    try:
        return open(source, "rb")
    except OSError as error:
        raise ValueError(f"{source}: a source must be a file that can be read, got {error.strerror}") from error


def _decompressed(raw: io.BufferedReader, suffix: str) -> io.BufferedIOBase:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".xz":
        return lzma.LZMAFile(raw)
    return io.BufferedReader(_Blocks(_unpacked(raw)), BLOCK) if suffix == ".zst" else raw


def _unpacked(raw: io.BufferedIOBase) -> Iterator[bytes]:
    """Unpacks frame after frame: zstandard's own reader takes a file that is broken off for one that ends."""
    import zstandard  # only who reads such a file needs it

    library = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame = None
    while block := raw.read(BLOCK):
        while block:
            frame = frame or library.decompressobj()
            try:
                yield frame.decompress(block)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
            block, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("a file that ends inside a frame")


class _Blocks(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterator[bytes]):
        self.blocks = blocks
        self.rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while not self.rest:
            block = next(self.blocks, None)
            if block is None:
                return 0
            self.rest = block
        n = min(len(buffer), len(self.rest))
        buffer[:n], self.rest = self.rest[:n], self.rest[n:]
        return n

"""Open, decompress and decode text files and stdin."""

import codecs
import gzip
import io
import lzma
import os
import shutil
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from select import select
from types import ModuleType
from typing import BinaryIO, cast

from regard.atomic import atomic_file, ensure_folder
from regard.config import DataSettings
from regard.extras import needed_by

COMPRESSED = (".gz", ".xz", ".zst")
BLOCK = 1 << 17
# Raised by the libraries for a file that is truncated, damaged or in another format.
DAMAGE = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
MIB = 1 << 20


def check_regular(path: Path) -> int:
    """Return the size of a file; raise ValueError for what cannot be read to an end, such as a pipe or a device."""
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        kind = KINDS.get(stat.S_IFMT(about.st_mode), "a device")
        raise ValueError(f"{path}: this must be a regular file, got {kind}: copy the folder again")
    return about.st_size


def read_whole(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes."""
    size = check_regular(path)
    if size > limit:
        raise ValueError(f"{path}: a file of this kind has at most {limit // MIB} MiB, got {size / MIB:.1f}")
    return path.read_bytes()


@contextmanager
def open_bytes(source: str) -> Iterator[io.BufferedIOBase]:
    """Open a path, or standard input for `-`, as a buffered stream of its decompressed bytes."""
    if source == "-":
        yield cast(io.BufferedIOBase, sys.stdin.buffer)
        return
    check_file(source)
    with _open(source) as raw:
        try:
            yield _decompress(raw, Path(source).suffix.lower())
        except DAMAGE as error:
            raise ValueError(
                f"{source}: a compressed file must be complete and match its extension, got {error}; copy it again, "
                "or rename it"
            ) from error


def check_file(source: str) -> None:
    """Raise ValueError unless there is a file to read."""
    path = Path(source)
    if path.is_dir():
        raise ValueError(f"{source}: a source must be a file, got a folder; name the files in it")
    if not path.exists():
        raise ValueError(f"{source}: no such file; a source is a path, two paths joined by a comma, or -")


def format_suffix(source: str) -> str:
    """Return the extension that names the format: the one before that of a compression."""
    path = Path(source.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def _open(source: str) -> io.BufferedReader:
    try:
        return open(source, "rb")
    except OSError as error:
        raise ValueError(f"{source}: a source must be a readable file, got {error.strerror}") from error


def _decompress(raw: io.BufferedReader, suffix: str) -> io.BufferedIOBase:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".xz":
        return lzma.LZMAFile(raw)
    return io.BufferedReader(_BlockStream(_decompress_zstd(raw)), BLOCK) if suffix == ".zst" else raw


# A block of zstd has at least 4 bytes and gives at most 128 KiB: 32 MiB at a time, whatever the file holds.
ZSTD_BLOCK = 1 << 10


def _decompress_zstd(raw: io.BufferedIOBase) -> Iterator[bytes]:
    """Decompress frame by frame: zstandard's own reader does not notice a truncated file."""
    zstandard = _zstandard("reading .zst")
    library = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame = None
    while block := raw.read(ZSTD_BLOCK):
        while block:
            frame = frame or library.decompressobj()
            try:
                yield frame.decompress(block)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
            block, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("a file that ends within a frame")


def _zstandard(what: str) -> ModuleType:
    with needed_by(what):
        import zstandard  # optional

    return zstandard


class _BlockStream(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]):
        self.blocks = blocks
        self.rest = b""
        self.at = 0  # bytes of `rest` that were read: cutting them off each time would copy what is left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while self.at == len(self.rest):
            block = next(self.blocks, None)
            if block is None:
                return 0
            self.rest, self.at = block, 0
        n = min(len(buffer), len(self.rest) - self.at)
        buffer[:n], self.at = self.rest[self.at : self.at + n], self.at + n
        return n


MAX_LINE_BYTES = 1 << 24  # a longer line is not a sentence, and would have to be held in memory


OVERLONG_LINE = "\n"  # stands for a line that was too long: no line holds its own end


def read_lines(source: str, skip_overlong: bool = False) -> Iterator[str]:
    r"""Yield the lines of a file without their ends; only \n ends a line, since U+2028 and the like are text.

    A line that is too long raises ValueError; or, if it is to be skipped, OVERLONG_LINE stands for it.
    """
    for where, raw in raw_lines(source):
        if raw is not None:
            yield decode_line(raw, where)
        elif skip_overlong:
            yield OVERLONG_LINE
        else:
            raise ValueError(f"{where}: {length_rule()}; give text with one pair on each line")


def read_good_lines(source: str, report: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines of a file, an empty one for each that cannot be read; `report` is told which and why."""
    for where, raw in raw_lines(source):
        line = ""
        try:
            if raw is None:
                report(f"{where}: {length_rule()}")
            else:
                line = decode_line(raw, where)
        except ValueError as error:
            report(str(error))
        yield line


def length_rule() -> str:
    return f"a line must be shorter than {MAX_LINE_BYTES} bytes"


def raw_lines(source: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield the place and the bytes of each line, None for one that is too long, of which the rest is read over."""
    with open_bytes(source) as stream:
        for number, raw in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES), b""), start=1):
            where = f"{source}, line {number}"
            if number == 1:
                raw = _strip_bom(raw, source)
            if len(raw) < MAX_LINE_BYTES:
                yield where, raw
                continue
            yield where, None
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(MAX_LINE_BYTES)


@contextmanager
def open_compressed(path: Path, name: str) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed as the extension of `name` says."""
    suffix = Path(name).suffix.lower()
    with path.open("wb") as raw:
        if suffix == ".zst":
            with _zstandard("writing .zst").ZstdCompressor().stream_writer(raw, closefd=False) as stream:
                yield cast(BinaryIO, stream)
        elif suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as stream:
                yield cast(BinaryIO, stream)
        elif suffix == ".xz":
            with lzma.LZMAFile(raw, "wb", preset=3) as stream:
                yield cast(BinaryIO, stream)
        else:
            yield raw


PAUSE = 0.05  # seconds without a line


def stdin_pauses() -> bool:
    """Tell whether standard input is a pipe or a terminal from which no further line has come for a moment."""
    stream = sys.stdin.buffer
    try:
        fd = stream.fileno()
        os.set_blocking(fd, False)
    except (OSError, ValueError):  # not a file of the system's
        return False
    try:
        has_line = b"\n" in cast(io.BufferedReader, stream).peek(1)
    finally:
        os.set_blocking(fd, True)
    return not has_line and not select([fd], [], [], PAUSE)[0]


def _strip_bom(raw: bytes, source: str) -> bytes:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{source}, line 1: text must be UTF-8, got UTF-16; save or convert it as UTF-8")
    return raw.removeprefix(codecs.BOM_UTF8)


def decode_line(raw: bytes, where: str) -> str:
    """Return the text of a line without its end."""
    try:
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        wrong = raw[error.start : error.start + 4]
        raise ValueError(
            f"{where}: text must be UTF-8, got {wrong!r} after {error.start} bytes; save or convert it as UTF-8"
        ) from error


STDIN_COPY = "stdin.tsv"


@contextmanager
def copy_stdin(data: DataSettings, folder: Path) -> Iterator[DataSettings]:
    """Yield settings in which `-` is a copy in `folder`, written once: a resumed run has nothing more to read."""
    n_times = (*data.train, *data.valid, *data.test, *data.exclude).count("-")
    if n_times > 1:
        raise ValueError(f"standard input can be read once, got - {n_times} times; give files for the other sources")
    if not n_times:
        yield data
        return
    copy = folder / STDIN_COPY
    with ensure_folder(folder):
        new = not copy.exists()
        try:
            if new:
                _write_copy(copy)
            yield _with_copy(data, str(copy))
        except BaseException:
            if new:
                copy.unlink(missing_ok=True)
            raise


def _write_copy(copy: Path) -> None:
    with open_bytes("-") as stream, atomic_file(copy) as draft, draft.open("wb") as file:
        shutil.copyfileobj(stream, file)


def _with_copy(data: DataSettings, copy: str) -> DataSettings:
    def rename(sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(copy if source == "-" else source for source in sources)

    named = {name: rename(getattr(data, name)) for name in ("train", "valid", "test", "exclude")}
    return replace(data, **named)

"""Text from standard input, kept beside a run so that it can be read again."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from regard.config import DataSettings
from regard.text.stream import open_bytes
from regard.text.whole import made_folder, whole_file

COPY = "stdin.tsv"


@contextmanager
def kept_stdin(data: DataSettings, folder: Path) -> Iterator[DataSettings]:
    """Gives settings in which `-` is a copy in `folder`, made only once: a run that goes on has no more to read."""
    n_times = (*data.train, *data.valid, *data.test, *data.exclude).count("-")
    if n_times > 1:
        raise ValueError(f"standard input can be read once, got - {n_times} times; give files for the other sources")
    if not n_times:
        yield data
        return
    copy = folder / COPY
    with made_folder(folder):
        new = not copy.exists()
        try:
            if new:
                _keep(copy)
            yield _renamed(data, str(copy))
        except BaseException:
            if new:
                copy.unlink(missing_ok=True)
            raise


def _keep(copy: Path) -> None:
    with open_bytes("-") as stream, whole_file(copy) as draft, draft.open("wb") as file:
        shutil.copyfileobj(stream, file)


def _renamed(data: DataSettings, copy: str) -> DataSettings:
    def rename(sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(copy if source == "-" else source for source in sources)

    named = {name: rename(getattr(data, name)) for name in ("train", "valid", "test", "exclude")}
    return replace(data, **named)

"""What a person sees of a run: a progress bar, a plain log, TensorBoard."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from regard.atomic import atomic_file
from regard.train.state import Progress


class RunLog:
    """Shows and records what happens, in the main process alone."""

    def __init__(self, folder: Path, total_steps: int | None, is_main: bool, plot: Callable[[Progress], None]):
        self.folder = folder
        self.is_main = is_main
        self.plot = plot
        self.console = Console(stderr=True, soft_wrap=True, quiet=not is_main)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        self.bar = Bar(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console, disable=not self._live()
        )
        self.task = self.bar.add_task("training", total=total_steps, text="")
        self.log = (folder / "log.txt").open("a", encoding="utf-8") if is_main else None
        self.metrics = (folder / "metrics.jsonl").open("a", encoding="utf-8") if is_main else None

    @cached_property
    def board(self) -> Any:
        """The TensorBoard log, which begins with the first numbers."""
        return _tensorboard(self.folder / "tensorboard") if self.is_main else None

    def __enter__(self) -> "RunLog":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        for file in (self.log, self.metrics, vars(self).get("board")):
            if file is not None:
                file.close()

    def resume_from(self, step: int) -> None:
        """Drop the metrics after a step from which the run resumes: those steps are taken again."""
        if self.metrics is None:
            return
        self.metrics.close()
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        with atomic_file(path) as draft:
            draft.write_text("".join(line for line in lines if _step_of(line) <= step), encoding="utf-8")
        self.metrics = path.open("a", encoding="utf-8")

    def info(self, message: str) -> None:
        """Write a line to the terminal and to the log file."""
        self.console.print(message, markup=False, highlight=False)
        if self.log is not None:
            print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {message}", file=self.log, flush=True)

    def step(self, step: int, loss: float, lr: float, speed: float) -> None:
        """Log the mean loss of some steps."""
        text = f"step {step} · loss {loss:.3f} · {speed:,.0f} tokens/s · lr {lr:.1e}"
        self.bar.update(self.task, completed=step, text=text)
        self._record(step, {"loss": loss, "lr": lr, "tokens_per_second": speed})
        if not self._live():
            self.info(text)

    def validation(self, progress: Progress, summary: str, samples: Sequence[tuple[str, str, str]]) -> None:
        """Log the newest validation and a few samples."""
        scores = {name: value for name, value in progress.valid[-1].items() if name != "step"}
        self._record(progress.step, {f"valid_{name}": value for name, value in scores.items()})
        self.info(f"step {progress.step}: {summary}")
        if self.is_main:
            self.plot(progress)
        for src, tgt, reference in samples:
            self.info(f"  {src}\n    → {tgt}\n    = {reference}")

    def _live(self) -> bool:
        return self.is_main and self.console.is_terminal

    def _record(self, step: int, values: Mapping[str, float]) -> None:
        if self.metrics is not None:
            print(json.dumps({"step": step, **values}), file=self.metrics, flush=True)
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)


def _step_of(line: str) -> float:
    """Return the step of a record; an incomplete one, cut off by a crash, counts as infinite."""
    try:
        return float(json.loads(line)["step"])
    except ValueError:
        return math.inf


def _tensorboard(folder: Path) -> Any:
    """Open a TensorBoard log, or return None if TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))

"""One run of an ablation, from settings to a row of numbers."""

import json
import math
import os
import shutil
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint import load_model, read_json, write_json
from regard.config import Settings
from regard.study.crew import to_file
from regard.study.record import plain
from regard.study.signature import signature
from regard.study.variants import Variant, digest
from regard.text.fingerprint import fingerprint
from regard.text.prepare import MARK, prepare
from regard.text.whole import whole_file, whole_folder
from regard.train.brake import RunStoppedError
from regard.train.run import choose_device
from regard.train.train import Outcome, train

RESULT, SAID = "result.json", "said.txt"


@dataclass(frozen=True)
class Job:
    """One variant with one seed, where it runs, and beside how many others."""

    variant: Variant
    seed: int
    folder: Path
    prepared: Path  # the base's folder, in whose `data` the text lies ready
    beside: int

    @property
    def settings(self) -> Settings:
        """Gives the settings with the seed in them."""
        return replace(self.variant.settings, train=replace(self.variant.settings.train, seed=self.seed))


@dataclass(frozen=True)
class Row:
    """What one run brought; one that failed says why, and brought nothing else."""

    variant: str
    part: str
    changes: list[str]
    seed: int
    digest: str  # of the settings
    error: str | None = None
    parameters: int | None = None
    tokens_per_second: float | None = None  # real target tokens, median over training, validation left out
    seconds: float | None = None  # of training and validation
    loss: float | None = None  # −log p of a target token of the validation text, of the model that was best
    perplexity: float | None = None
    bleu_valid: float | None = None
    bleu_test: float | None = None
    chrf_test: float | None = None
    reason: str | None = None  # why it ended
    curve: list[dict[str, float | int]] = field(default_factory=list)  # step, loss, bleu, chrf of each validation
    beside: int = 1  # runs that shared the machine
    signature: dict[str, Any] = field(default_factory=dict)


def do_run(job: Job) -> None:
    """Runs, or goes on with what was stopped, and leaves the row in the run's folder; for a process of its own."""
    to_file(job.folder / SAID)
    torch.set_num_threads(1)
    try:
        row = measured(job, train(job.settings, job.folder, lambda progress: None))
    except RunStoppedError as stop:
        raise SystemExit(128 + stop.number) from stop
    except Exception as error:
        row = failed(job, f"{type(error).__name__}: {error}")
    with whole_file(job.folder / RESULT) as draft:
        write_json(draft, plain(row))


def failed(job: Job, why: str) -> Row:
    """Makes the row of a run that brought nothing."""
    return Row(**_about(job), error=why)


def read_row(path: Path) -> Row:
    """Reads a row that a run left."""
    try:
        return Row(**read_json(path))
    except TypeError as error:
        raise ValueError(f"{path}: this is no row of an ablation ({error})") from error


def measured(job: Job, outcome: Outcome) -> Row:
    """Makes the row of a run that is done, and lets its checkpoints go: it will not go on."""
    best, test, device = outcome.best, outcome.test, choose_device(job.settings.train.device)
    row = Row(
        **_about(job),
        parameters=sum(parameter.numel() for parameter in load_model(job.folder).model.parameters()),
        tokens_per_second=median_speed(job.folder / "metrics.jsonl"),
        seconds=outcome.progress.seconds,
        loss=best["loss"],
        perplexity=math.exp(best["loss"]),
        bleu_valid=best["bleu"],
        bleu_test=None if test is None else test.bleu,
        chrf_test=None if test is None else test.chrf,
        reason=outcome.reason,
        curve=[dict(found) for found in outcome.progress.valid],
        signature=signature(device.type, seed=job.seed, settings=digest(job.settings)),
    )
    for name in ("checkpoints", "data"):
        shutil.rmtree(job.folder / name, ignore_errors=True)
    return row


def median_speed(path: Path) -> float | None:
    """Gives the median of the speeds that a run told of itself, without the first, in which all begins."""
    told = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    speeds = [each["tokens_per_second"] for each in told if "tokens_per_second" in each]
    return statistics.median(speeds[1:] or speeds) if speeds else None


def prepare_text(base: Settings, folder: Path) -> None:
    """Prepares the text of all variants, once."""
    prepare(base.data, base.text, folder, lambda message: None, base.train.seed)


def link_text(job: Job, base: Settings) -> None:
    """Gives a run the text that is ready, as links: the seed of its training does not change what all learn from.

    A variant that has another text, such as another vocabulary, prepares its own.
    """
    made, target = job.settings, job.folder / "data"
    if target.exists() or (made.data, made.text) != (base.data, base.text):
        return
    with whole_folder(target) as draft:
        shutil.copytree(job.prepared / "data", draft, copy_function=_link, dirs_exist_ok=True)
        (draft / MARK).unlink()
        (draft / MARK).write_text(fingerprint(made.data, made.text, made.train.seed, None), encoding="utf-8")


def _about(job: Job) -> dict[str, Any]:
    variant = job.variant
    about = {"variant": variant.name, "part": variant.part, "changes": list(variant.changes), "seed": job.seed}
    return {**about, "digest": digest(job.settings), "beside": job.beside}


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)

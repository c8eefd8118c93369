"""The variants of an ablation, read from TOML, and one run of one of them."""

import json
import math
import os
import random
import shutil
import statistics
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from json import dumps
from pathlib import Path
from typing import Any

import torch

from regard.atomic import atomic_file, atomic_folder
from regard.checkpoint import read_json, settings_table, write_json
from regard.checkpoint.weights import load_model
from regard.config import Settings, merge, parse_settings, unknown
from regard.data.dataset import FINGERPRINT
from regard.data.fingerprint import fingerprint, read_fingerprint
from regard.data.prepare import prepare
from regard.device import find_device
from regard.study.repeats import redirect_output, signature
from regard.terminal import to_json
from regard.toml import parse_override
from regard.train.loop import RunStoppedError
from regard.train.start import resolve_paths  # where the texts that a file names lie
from regard.train.trainer import Outcome, train

BASELINE = "baseline"
TITLE = "What each part is worth"
KEYS = ["title", "seeds", "base", "variant"]
TABLES = tuple(table.name for table in fields(Settings))
# What must be the same for all to be comparable: the budget, and all data but the training text.
TRAINING_TEXT = ("train", "weights", "tags")
BUDGET = ("batch_tokens", "accumulate", "max_epochs", "max_steps", "max_minutes", "patience", "seed")


@dataclass(frozen=True)
class Variant:
    """One variant: its settings, what it exchanges, and the part that belongs to."""

    name: str
    part: str
    changes: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True)
class AblationPlan:
    """All variants, the baseline first, each to be run with each seed."""

    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]
    title: str = TITLE

    @property
    def same_data(self) -> bool:
        """Return whether all variants train on the same text."""
        return all(variant.settings.data == self.variants[0].settings.data for variant in self.variants)

    def same_vocabulary(self, variant: Variant) -> bool:
        """Return whether a variant has the baseline's vocabulary, so that losses per token compare."""
        base, made = self.variants[0].settings, variant.settings
        sampled = replace(made.text, sampling=base.text.sampling, variants=base.text.variants)
        return made.data == base.data and sampled == base.text


def read_plan(path: Path, corpora: Path | None) -> AblationPlan:
    """Read a file with `title`, `seeds`, tables of `[base]`, and `[[variant]]`s; errors name the file."""
    try:
        return make_plan(tomllib.loads(path.read_text(encoding="utf-8")), path.parent, corpora)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def make_plan(file: Mapping[str, Any], beside: Path, corpora: Path | None) -> AblationPlan:
    """Make the settings of all variants."""
    for key in file:
        if key not in KEYS:
            raise ValueError(unknown(key, KEYS, "key"))
    base = resolve_paths(dict(file.get("base", {})), beside, corpora)
    first = Variant(BASELINE, "", (), parse_settings(Settings, base))
    check_base(first.settings)
    others = [resolve_paths(dict(given), beside, corpora) for given in file.get("variant", [])]
    variants = [first, *(make_variant(given, base, first.settings) for given in others)]
    names = [variant.name for variant in variants]
    if len(variants) < 2 or len(set(names)) < len(names):
        twice = [name for name in names if names.count(name) > 1]
        raise ValueError(f"there must be 1 or more variants, each with a name of its own, got {twice or names[1:]}")
    return AblationPlan(_seeds(file.get("seeds", [0])), tuple(variants), str(file.get("title", TITLE)))


def check_base(base: Settings) -> None:
    """Raise ValueError for a budget that would not be the same for all."""
    if not base.data.train:
        raise ValueError("base.data.train must name the text that all learn from, got nothing")
    if base.train.max_steps is None:
        raise ValueError("base.train.max_steps must say the budget, which is the same for all, got none")
    for name in ("max_minutes", "patience", "max_epochs"):
        if getattr(base.train, name) is not None:
            value = getattr(base.train, name)
            raise ValueError(f'base.train.{name} must be "none", as max_steps is the budget of all, got {value}')


def make_variant(given: Mapping[str, Any], base: Mapping[str, Any], first: Settings) -> Variant:
    """Merge one variant's tables into the base."""
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"a variant must have a name, got {name!r}")
    try:
        for key in given:
            if key not in {"name", "part", "set", *TABLES}:
                raise ValueError(unknown(key, ["name", "part", "set", *TABLES], "key"))
        tables = {key: value for key, value in given.items() if key in TABLES}
        made = parse_settings(Settings, merge(base, tables, *(parse_override(text) for text in given.get("set", []))))
        changes = differences(first, made)
        check_changes(changes)
    except ValueError as error:
        raise ValueError(f"variant {name!r}: {error}") from error
    return Variant(name, str(given.get("part", "")), tuple(change for _, change in changes), made)


def check_changes(changes: list[tuple[str, str]]) -> None:
    """Raise ValueError for a variant that exchanges nothing, or what must be the same for all."""
    if not changes:
        raise ValueError("it is the same as the base: leave it out, or exchange a part")
    for setting, change in changes:
        table, _, name = setting.partition(".")
        if (table == "data" and name not in TRAINING_TEXT) or (table == "train" and name in BUDGET):
            raise ValueError(
                f"all variants are judged by the same text and budget, got {change}: change it in the base"
            )


def differences(one: Settings, other: Settings) -> list[tuple[str, str]]:
    """List the settings in which two differ: each one's name, and its old and new value."""
    changes = []
    old, new = settings_table(one), settings_table(other)
    for table, values in old.items():
        for name, value in values.items():
            if new[table][name] != value:
                setting = f"{table}.{name}"
                changes.append((setting, f"{setting}: {_worded(value)} → {_worded(new[table][name])}"))
    return changes


# Settings that came after results had been stored: at its default, such a one changes no hash.
ADDED_LATER = {
    "decode": ("split", "retry", "early_stopping", "at_limit", "forced_bos"),
    "text": ("simplify",),
    "model": ("state_norm", "scale_embedding", "embedding_norm", "output_bias"),
}


def digest(made: Settings) -> str:
    """Return a hash of settings, by which results of other settings are recognised."""
    tables, defaults = settings_table(made), settings_table(Settings())
    for table, names in ADDED_LATER.items():
        for name in names:
            if tables[table][name] == defaults[table][name]:
                del tables[table][name]
    return blake2b(dumps(tables, sort_keys=True).encode(), digest_size=6).hexdigest()


def _seeds(given: Any) -> tuple[int, ...]:
    if not isinstance(given, list) or not given or any(type(seed) is not int or seed < 0 for seed in given):
        raise ValueError(f"seeds must be a list of whole numbers from 0 on, got {given!r}")
    if len(set(given)) < len(given):
        raise ValueError(f"seeds must differ, got {given}")
    return tuple(given)


def _worded(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join("/".join(Path(str(each)).parts[-2:]) for each in value) or "none"
    if not isinstance(value, Mapping):
        return str(value)
    options = ", ".join(f"{key} {option}" for key, option in value.items() if key != "name")
    return f"{value['name']} ({options})" if options else str(value["name"])


PLAN = Path(__file__).with_name("reversal.toml")  # the ablation that needs no text but this
LETTERS = "abcdefghijklmnop"
SIZES = {"train": 4000, "valid": 200, "test": 200}


def write_reversals(folder: Path, shortest: int = 4, longest: int = 10, seed: int = 0) -> None:
    """Write three files of pairs that share no string; existing files stay."""
    names = [folder / f"{name}.tsv" for name in SIZES]
    if all(path.exists() for path in names):
        return
    folder.mkdir(parents=True, exist_ok=True)
    pairs = iter(draw_reversals(sum(SIZES.values()), shortest, longest, seed))
    for path, n in zip(names, SIZES.values(), strict=True):
        with atomic_file(path) as draft:
            lines = (f"{src}\t{tgt}\n" for src, tgt in (next(pairs) for _ in range(n)))
            draft.write_text("".join(lines), encoding="utf-8")


def draw_reversals(n: int, shortest: int, longest: int, seed: int) -> list[tuple[str, str]]:
    """Draw different strings of separate letters, each with its reversal."""
    generator = random.Random(seed)
    pairs: dict[str, str] = {}
    while len(pairs) < n:
        letters = [generator.choice(LETTERS) for _ in range(generator.randint(shortest, longest))]
        pairs[" ".join(letters)] = " ".join(reversed(letters))
    return list(pairs.items())


RESULT, OUTPUT = "result.json", "said.txt"


@dataclass(frozen=True)
class AblationJob:
    """One variant with one seed, its folder, and how many run at a time."""

    variant: Variant
    seed: int
    folder: Path
    prepared: Path  # the base's folder, with the prepared text in `data`
    beside: int

    @property
    def settings(self) -> Settings:
        """Return the settings with the seed in them."""
        return replace(self.variant.settings, train=replace(self.variant.settings.train, seed=self.seed))


@dataclass(frozen=True)
class AblationRow:
    """The result of one run; one that failed has its error and nothing else."""

    variant: str
    part: str
    changes: list[str]
    seed: int
    digest: str  # of the settings
    error: str | None = None
    parameters: int | None = None
    tokens_per_second: float | None = None  # target tokens without padding, median over training, without validation
    seconds: float | None = None  # of training and validation
    loss: float | None = None  # −log p of a target token of the validation text, for the best model
    perplexity: float | None = None
    bleu_valid: float | None = None
    bleu_test: float | None = None
    chrf_test: float | None = None
    reason: str | None = None  # why training ended
    curve: list[dict[str, float | int]] = field(default_factory=list)  # step, loss, bleu, chrf of each validation
    beside: int = 1  # runs that shared the machine
    signature: dict[str, Any] = field(default_factory=dict)


def run_job(job: AblationJob) -> None:
    """Run or resume one job, in a process of its own, and leave the row in its folder."""
    redirect_output(job.folder / OUTPUT)
    torch.set_num_threads(1)
    try:
        row = successful_row(job, train(job.settings, job.folder, lambda progress: None))
    except RunStoppedError as stop:
        raise SystemExit(128 + stop.number) from stop
    except Exception as error:
        row = failed_row(job, f"{type(error).__name__}: {error}")
    with atomic_file(job.folder / RESULT) as draft:
        write_json(draft, to_json(row))


def failed_row(job: AblationJob, why: str) -> AblationRow:
    """Return the row of a run that failed."""
    return AblationRow(**_about(job), error=why)


def read_row(path: Path) -> AblationRow:
    """Read a row that a run left."""
    try:
        return AblationRow(**read_json(path))
    except TypeError as error:
        raise ValueError(f"{path}: this is no row of an ablation ({error})") from error


def successful_row(job: AblationJob, outcome: Outcome) -> AblationRow:
    """Return the row of a finished run, and delete its checkpoints."""
    best, test, device = outcome.best, outcome.test, torch.device(find_device(job.settings.train.device))
    row = AblationRow(
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
        curve=[dict(each) for each in outcome.progress.valid],
        signature=signature(device.type, seed=job.seed, settings=digest(job.settings)),
    )
    for name in ("checkpoints", "data"):
        shutil.rmtree(job.folder / name, ignore_errors=True)
    return row


def median_speed(path: Path) -> float | None:
    """Return the median of the speeds that a run logged, without the first, which includes the warm-up."""
    logged = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    speeds = [each["tokens_per_second"] for each in logged if "tokens_per_second" in each]
    return statistics.median(speeds[1:] or speeds) if speeds else None


def prepare_text(base: Settings, folder: Path) -> None:
    """Prepare the text of all variants, once."""
    prepare(base.data, base.text, folder, lambda message: None, base.train.seed)


def link_text(job: AblationJob, base: Settings) -> None:
    """Link the prepared text into a run's folder: the seed of training does not change the text.

    A variant with another text, or another vocabulary, prepares its own.
    """
    made, target = job.settings, job.folder / "data"
    if target.exists() or (made.data, made.text) != (base.data, base.text):
        return
    with atomic_folder(target) as draft:
        shutil.copytree(job.prepared / "data", draft, copy_function=_link, dirs_exist_ok=True)
        (draft / FINGERPRINT).unlink()
        mark = fingerprint(made.data, made.text, made.train.seed, None, read_fingerprint(job.prepared / "data"))
        (draft / FINGERPRINT).write_text(mark, encoding="utf-8")


def _about(job: AblationJob) -> dict[str, Any]:
    variant = job.variant
    about = {"variant": variant.name, "part": variant.part, "changes": list(variant.changes), "seed": job.seed}
    return {**about, "digest": digest(job.settings), "beside": job.beside}


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)

"""`regard study ablate`: same data, same budget, one part of the model exchanged."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from regard.atomic import atomic_file
from regard.checkpoint import read_json, write_json
from regard.config import Settings, unknown
from regard.plot.style import COLOURS, in_style, new_figure
from regard.study.ablate_runs import (
    BASELINE,
    OUTPUT,
    RESULT,
    AblationJob,
    AblationPlan,
    AblationRow,
    Variant,
    digest,
    failed_row,
    link_text,
    prepare_text,
    read_row,
    run_job,
)
from regard.study.repeats import MeanStd, differs, mean_std, run_jobs
from regard.terminal import QUIET, to_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULTS = "results.json"


@dataclass(frozen=True)
class VariantReport:
    """One variant: means over its seeds, and whether it differs significantly from the baseline."""

    variant: str
    part: str
    changes: list[str]
    seeds: list[int]
    parameters: int | None
    speed: MeanStd | None  # target tokens/s, without padding
    quality: MeanStd | None  # BLEU, on the test where there is one
    loss: MeanStd | None
    perplexity: MeanStd | None
    gain: float | None  # of quality, over the baseline's
    differs: bool | None = field(metadata={"json": "beyond"})  # significantly
    loss_gain: float | None  # of the loss, over the baseline's where the vocabulary is the same: below 0 is better
    loss_differs: bool | None = field(metadata={"json": "loss_beyond"})
    errors: list[str]


@dataclass(frozen=True)
class Ablation:
    """All rows so far, and their summary."""

    rows: list[AblationRow]
    lines: list[VariantReport]
    measured_on: str  # "test" or "validation": where BLEU is measured
    missing: int  # runs that have not been done
    same_data: bool  # all variants train on the same text


def run(plan: AblationPlan, folder: Path, n_parallel: int, only: list[str]) -> Iterator[AblationRow]:
    """Run what has no result yet, all variants with one seed before the next, and yield each row as it comes.

    After each, `results.json` in the folder is rewritten.
    """
    jobs = make_jobs(plan, folder, n_parallel, only)
    rows = {key(row): row for row in read_rows(folder)}
    check_digests(jobs, rows)
    waiting = [job for job in jobs if not done(job, rows)]
    if waiting:
        base = plan.variants[0].settings
        prepare_text(base, folder)
        for job in waiting:
            job.folder.mkdir(parents=True, exist_ok=True)
            (job.folder / RESULT).unlink(missing_ok=True)
            link_text(job, base)
    for job, code in run_jobs(run_job, waiting, n_parallel):
        row = _row_of(job, code)
        rows[key(row)] = row
        write_rows(folder, plan, list(rows.values()))
        yield row


def make_jobs(plan: AblationPlan, folder: Path, n_parallel: int, only: list[str]) -> list[AblationJob]:
    """List the runs, seed by seed."""
    names = [variant.name for variant in plan.variants]
    for name in only:
        if name not in names:
            raise ValueError(unknown(name, names, "variant"))
    chosen = [variant for variant in plan.variants if not only or variant.name in {BASELINE, *only}]
    beside = min(n_parallel, len(chosen) * len(plan.seeds))
    jobs = [AblationJob(each, seed, folder, folder, beside) for seed in plan.seeds for each in chosen]
    return [replace(job, folder=_folder(job)) for job in jobs]


def key(row: AblationRow) -> tuple[str, int]:
    """Return what identifies a row."""
    return row.variant, row.seed


def done(job: AblationJob, rows: dict[tuple[str, int], AblationRow]) -> bool:
    """Return whether a run has its result; one that failed is tried again."""
    row = rows.get((job.variant.name, job.seed))
    return row is not None and row.error is None


def check_digests(jobs: list[AblationJob], rows: dict[tuple[str, int], AblationRow]) -> None:
    """Raise ValueError where a result in the folder belongs to other settings than these."""
    for job in jobs:
        row = rows.get((job.variant.name, job.seed))
        if row is not None and row.error is None and row.digest != digest(job.settings):
            raise ValueError(
                f"{job.folder}: variant {row.variant!r} was run with other settings here ({row.digest}, asked for are "
                f"{digest(job.settings)}): name another --folder, or the same --corpora and --device as then"
            )


def read_rows(folder: Path) -> list[AblationRow]:
    """Read the results of a folder: the baseline's, then the others' as they came."""
    path = folder / RESULTS
    if not path.exists():
        return []
    try:
        rows = [AblationRow(**row) for row in read_json(path)["rows"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: these are no results of an ablation ({error!r})") from error
    return sorted(rows, key=lambda row: row.variant != BASELINE)


def matching_rows(plan: AblationPlan, folder: Path) -> list[AblationRow]:
    """Read results of the very settings of a plan, made here or on another machine."""
    rows = read_rows(folder)
    if not rows:
        raise ValueError(f"{folder} holds no {RESULTS} with a run in it: leave --show out, and it is run")
    check_digests(make_jobs(plan, folder, 1, []), {key(row): row for row in rows})
    return rows


def write_rows(folder: Path, plan: AblationPlan, rows: list[AblationRow]) -> None:
    """Write all results, whole or not at all."""
    with atomic_file(folder / RESULTS) as draft:
        write_json(draft, {"seeds": list(plan.seeds), "rows": to_json(rows)})


def summarise(plan: AblationPlan, rows: list[AblationRow]) -> Ablation:
    """Take means over seeds, and compare each variant with the baseline."""
    known = {variant.name: variant for variant in plan.variants}
    rows = [row for row in rows if row.variant in known and row.seed in plan.seeds]
    on_test = any(row.bleu_test is not None for row in rows)
    lines = [_line(variant, [row for row in rows if row.variant == variant.name], on_test) for variant in plan.variants]
    compared = [
        _compared(line, lines[0], plan.same_vocabulary(known[line.variant]))
        for line in lines
        if line.seeds or line.errors
    ]
    missing = len(plan.seeds) * len(plan.variants) - sum(row.error is None for row in rows)
    return Ablation(rows, compared, "test" if on_test else "validation", missing, plan.same_data)


def common_signature(ablation: Ablation, plan: AblationPlan) -> dict[str, Any]:
    """Return the signature of the runs: that of the first, with the seeds of all."""
    signed = next((row.signature for row in ablation.rows if row.error is None), {})
    return {**signed, "seed": ", ".join(map(str, plan.seeds))}


def with_device(plan: AblationPlan, device: str, first_seed: int) -> AblationPlan:
    """Run all variants on one device, with `first_seed` added to the seeds."""

    def on_device(settings: Settings) -> Settings:
        return replace(settings, train=replace(settings.train, device=device))

    variants = tuple(replace(each, settings=on_device(each.settings)) for each in plan.variants)
    return replace(plan, seeds=tuple(seed + first_seed for seed in plan.seeds), variants=variants)


def _line(variant: Variant, rows: list[AblationRow], on_test: bool) -> VariantReport:
    good = [row for row in rows if row.error is None]

    def over(name: str) -> MeanStd | None:
        values = [getattr(row, name) for row in good if getattr(row, name) is not None]
        return mean_std(values) if values else None

    return VariantReport(
        variant=variant.name,
        part=variant.part,
        changes=list(variant.changes),
        seeds=sorted(row.seed for row in good),
        parameters=good[0].parameters if good else None,
        speed=over("tokens_per_second"),
        quality=over("bleu_test" if on_test else "bleu_valid"),
        loss=over("loss"),
        perplexity=over("perplexity"),
        gain=None,
        differs=None,
        loss_gain=None,
        loss_differs=None,
        errors=[f"seed {row.seed}: {row.error}" for row in rows if row.error is not None],
    )


def _compared(line: VariantReport, base: VariantReport, same_vocabulary: bool) -> VariantReport:
    if line.variant == base.variant or line.quality is None or base.quality is None:
        return line
    assert line.loss is not None and base.loss is not None, "a run with BLEU has a loss"
    return replace(
        line,
        gain=line.quality.mean - base.quality.mean,
        differs=differs(line.quality, base.quality),
        loss_gain=line.loss.mean - base.loss.mean if same_vocabulary else None,
        loss_differs=differs(line.loss, base.loss) if same_vocabulary else None,
    )


def _row_of(job: AblationJob, code: int) -> AblationRow:
    if code == 0 and (job.folder / RESULT).exists():
        return read_row(job.folder / RESULT)
    output = (job.folder / OUTPUT).read_text(encoding="utf-8") if (job.folder / OUTPUT).exists() else ""
    last = output.strip().splitlines()[-1:] or ["no output"]
    return failed_row(job, f"its process ended with exit code {code}: {last[0]}")


def _folder(job: AblationJob) -> Path:
    """Name a run's folder by its settings too, so that a run with others is never resumed by mistake."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in job.variant.name)
    return job.prepared / "runs" / f"{letters}-{job.seed}-{digest(job.settings)}"


@in_style
def figure(ablation: Ablation) -> "Figure":
    """Draw the variants sorted by quality, each seed a mark, and the curves of validation loss."""
    lines = sorted((line for line in ablation.lines if line.quality), key=quality)
    drawing = new_figure(figsize=(11, 1.2 + 0.26 * max(12, len(lines))))
    bars, curves = drawing.subplots(1, 2, width_ratios=[1.2, 1])
    parts = list(dict.fromkeys(line.part for line in ablation.lines))
    colours = {part: COLOURS[at % len(COLOURS)] for at, part in enumerate(parts)}
    _draw_bars(bars, lines, ablation, colours)
    _draw_curves(curves, ablation.rows, colours)
    return drawing


def quality(line: VariantReport) -> float:
    """Return what variants are sorted by."""
    return line.quality.mean if line.quality is not None else 0.0


def mean_curve(rows: list[AblationRow]) -> list[tuple[float, float]]:
    """Return steps and validation losses, averaged over the seeds that were validated there."""
    losses: dict[float, list[float]] = {}
    for row in rows:
        for validation in row.curve:
            losses.setdefault(float(validation["step"]), []).append(validation["loss"])
    return [(step, sum(values) / len(values)) for step, values in sorted(losses.items())]


def _draw_bars(axes: "Axes", lines: list[VariantReport], ablation: Ablation, colours: dict[str, str]) -> None:
    by_variant = {line.variant: at for at, line in enumerate(lines)}
    for at, line in enumerate(lines):
        deviation = line.quality.std if line.quality is not None else 0.0
        axes.errorbar([quality(line)], [at], xerr=[deviation], fmt="o", color=colours[line.part], markersize=5)
    for row in ablation.rows:
        value = row.bleu_test if ablation.measured_on == "test" else row.bleu_valid
        if value is not None and row.variant in by_variant:
            axes.plot([value], [by_variant[row.variant]], "|", color="black", markersize=6, alpha=0.6)
    base = next((line for line in lines if line.variant == BASELINE), None)
    if base is not None:
        axes.axvline(quality(base), color="black", linewidth=0.5)
    axes.set_yticks(range(len(lines)), [line.variant for line in lines])
    axes.set(title=f"BLEU on the {ablation.measured_on}: mean ± deviation, strokes: seeds", xlabel="BLEU")
    axes.grid(axis="x", alpha=0.2)


def _draw_curves(axes: "Axes", rows: list[AblationRow], colours: dict[str, str]) -> None:
    drawn: set[str] = set()
    for variant in dict.fromkeys(row.variant for row in rows if row.curve):
        mine = [row for row in rows if row.variant == variant]
        curve, part = mean_curve(mine), mine[0].part
        label = None if part in drawn else part or BASELINE
        drawn.add(part)
        width = 2.0 if variant == BASELINE else 0.9
        axes.plot([step for step, _ in curve], [loss for _, loss in curve], color=colours[part], lw=width, label=label)
    axes.set(title="Validation loss, means over seeds", xlabel="step")
    axes.legend(fontsize="small")


MARKS = {True: "*", False: "", None: ""}


def tables(ablation: Ablation) -> dict[str, Table]:
    """Return the variants: quality, loss, their differences to the baseline, speed and size."""
    seeds = sorted({seed for line in ablation.lines for seed in line.seeds})
    same = "Same data, same budget" if ablation.same_data else "Same budget"
    title = f"{same}, one part exchanged; seeds {', '.join(map(str, seeds)) or 'none'}"
    caption = (
        f"BLEU on the {ablation.measured_on} text, and loss per token on the validation text: means ± standard "
        "deviations over seeds, and differences to the baseline. * is significant by Welch's t-test at 5 %, each test "
        "by itself."
    )
    table = Table(title=title, caption=caption + _unfinished(ablation), **QUIET)
    heads = ("part", "variant", "BLEU", "differ-\nence", "loss", "differ-\nence", "tokens/s", "param-\neters", "seeds")
    for at, head in enumerate(heads):
        table.add_column(head, justify="left" if at < 2 else "right")
    for line in ablation.lines:
        table.add_row(*_cells(line))
    return {"variants": table}


def failures(ablation: Ablation) -> list[str]:
    """List what failed, and why; seeds with the same error share a line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in sorted(ablation.rows, key=lambda row: row.seed):
        if row.error is not None:
            alike.setdefault((row.variant, row.error), []).append(str(row.seed))
    return [
        f"{name}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}: {error}"
        for (name, error), seeds in alike.items()
    ]


def _cells(line: VariantReport) -> tuple[str, ...]:
    if line.quality is None or line.loss is None:
        return line.part, line.variant, "failed", *("–" for _ in range(5)), "0"
    speed = "–" if line.speed is None else f"{line.speed.mean:,.0f}"
    gains = _gain(line.gain, line.differs, 2), _gain(line.loss_gain, line.loss_differs, 3)
    sizes = "–" if line.parameters is None else f"{line.parameters:,}"
    quality = (line.quality.format(2), gains[0], line.loss.format(3), gains[1])
    return line.part, line.variant, *quality, speed, sizes, str(len(line.seeds))


def _gain(gain: float | None, significant: bool | None, digits: int) -> str:
    return "–" if gain is None else f"{gain:+.{digits}f}{MARKS[significant]}".replace("-", "−")


def _unfinished(ablation: Ablation) -> str:
    return f" {ablation.missing} runs are missing: the same command resumes." if ablation.missing else ""

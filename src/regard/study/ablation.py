"""`study ablate`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from regard.atomic import atomic_file
from regard.checkpoint import read_json, write_json
from regard.config import Settings, unknown
from regard.plot.style import COLOURS, Drawing, in_style
from regard.plot.terminal import QUIET
from regard.study.ablation_runs import (
    BASELINE,
    RESULT,
    SAID,
    Job,
    Plan,
    Row,
    Variant,
    digest,
    do_run,
    failed,
    link_text,
    prepare_text,
    read_row,
)
from regard.study.extrapolate import said
from regard.study.parallel import side_by_side
from regard.study.stats import Spread, beyond, plain, spread

RESULTS = "results.json"


@dataclass(frozen=True)
class Line:
    """One variant: means over its seeds, and whether it differs from the baseline by more than chance does."""

    variant: str
    part: str
    changes: list[str]
    seeds: list[int]
    parameters: int | None
    speed: Spread | None  # real target tokens/s
    quality: Spread | None  # BLEU, on the test where there is one
    loss: Spread | None
    perplexity: Spread | None
    gain: float | None  # of quality, against the baseline's
    beyond: bool | None
    loss_gain: float | None  # of the loss, against the baseline's where pieces are the same: below 0 is better
    loss_beyond: bool | None
    errors: list[str]


@dataclass(frozen=True)
class Ablation:
    """All rows so far, and what they sum up to."""

    rows: list[Row]
    lines: list[Line]
    measured_on: str  # "test" or "validation": what BLEU is of
    missing: int  # runs that have not been done
    same_data: bool  # all learn from the same text


def run_ablation(plan: Plan, folder: Path, at_once: int, only: list[str]) -> Iterator[Row]:
    """Runs what has no result yet, all variants with one seed before the next, and gives each row as it comes.

    After each, `results.json` in the folder is written anew.
    """
    jobs = make_jobs(plan, folder, at_once, only)
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
    for job, code in side_by_side(do_run, waiting, at_once):
        row = _row_of(job, code)
        rows[key(row)] = row
        write_rows(folder, plan, list(rows.values()))
        yield row


def make_jobs(plan: Plan, folder: Path, at_once: int, only: list[str]) -> list[Job]:
    """Lists the runs, seed by seed."""
    names = [variant.name for variant in plan.variants]
    for name in only:
        if name not in names:
            raise ValueError(unknown(name, names, "variant"))
    chosen = [variant for variant in plan.variants if not only or variant.name in {BASELINE, *only}]
    beside = min(at_once, len(chosen) * len(plan.seeds))
    jobs = [Job(each, seed, folder, folder, beside) for seed in plan.seeds for each in chosen]
    return [replace(job, folder=_place(job)) for job in jobs]


def key(row: Row) -> tuple[str, int]:
    """Tells rows apart."""
    return row.variant, row.seed


def done(job: Job, rows: dict[tuple[str, int], Row]) -> bool:
    """Tells whether a run has brought its result; one that failed is tried again."""
    row = rows.get((job.variant.name, job.seed))
    return row is not None and row.error is None


def check_digests(jobs: list[Job], rows: dict[tuple[str, int], Row]) -> None:
    """Raises ValueError where a result in the folder is of other settings than are asked for now."""
    for job in jobs:
        row = rows.get((job.variant.name, job.seed))
        if row is not None and row.error is None and row.digest != digest(job.settings):
            raise ValueError(
                f"{job.folder}: variant {row.variant!r} was run with other settings here ({row.digest}, asked for are "
                f"{digest(job.settings)}): name another --folder, or the same --corpora and --device as then"
            )


def read_rows(folder: Path) -> list[Row]:
    """Reads the results that a folder has: the baseline's, then the others' as they came."""
    path = folder / RESULTS
    if not path.exists():
        return []
    try:
        rows = [Row(**row) for row in read_json(path)["rows"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: these are no results of an ablation ({error!r})") from error
    return sorted(rows, key=lambda row: row.variant != BASELINE)


def kept_rows(plan: Plan, folder: Path) -> list[Row]:
    """Reads results that were brought by the very settings of a plan, here or on another machine."""
    rows = read_rows(folder)
    if not rows:
        raise ValueError(f"{folder} holds no {RESULTS} with a run in it: leave --show out, and it is run")
    check_digests(make_jobs(plan, folder, 1, []), {key(row): row for row in rows})
    return rows


def write_rows(folder: Path, plan: Plan, rows: list[Row]) -> None:
    """Writes all results, whole or not at all."""
    with atomic_file(folder / RESULTS) as draft:
        write_json(draft, {"seeds": list(plan.seeds), "rows": plain(rows)})


def sum_up(plan: Plan, rows: list[Row]) -> Ablation:
    """Takes means over seeds, and compares each with the baseline."""
    known = {variant.name: variant for variant in plan.variants}
    rows = [row for row in rows if row.variant in known and row.seed in plan.seeds]
    on_test = any(row.bleu_test is not None for row in rows)
    lines = [_line(variant, [row for row in rows if row.variant == variant.name], on_test) for variant in plan.variants]
    compared = [
        _compared(line, lines[0], plan.same_pieces(known[line.variant])) for line in lines if line.seeds or line.errors
    ]
    missing = len(plan.seeds) * len(plan.variants) - sum(row.error is None for row in rows)
    return Ablation(rows, compared, "test" if on_test else "validation", missing, plan.same_data)


def with_device(plan: Plan, device: str, first_seed: int) -> Plan:
    """Lets all variants run on one device, and with seeds from another number on."""

    def moved(made: Settings) -> Settings:
        return replace(made, train=replace(made.train, device=device))

    variants = tuple(replace(each, settings=moved(each.settings)) for each in plan.variants)
    return replace(plan, seeds=tuple(seed + first_seed for seed in plan.seeds), variants=variants)


def _line(variant: Variant, rows: list[Row], on_test: bool) -> Line:
    good = [row for row in rows if row.error is None]

    def over(name: str) -> Spread | None:
        values = [getattr(row, name) for row in good if getattr(row, name) is not None]
        return spread(values) if values else None

    return Line(
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
        beyond=None,
        loss_gain=None,
        loss_beyond=None,
        errors=[f"seed {row.seed}: {row.error}" for row in rows if row.error is not None],
    )


def _compared(line: Line, base: Line, same_pieces: bool) -> Line:
    if line.variant == base.variant or line.quality is None or base.quality is None:
        return line
    assert line.loss is not None and base.loss is not None, "a run with BLEU has a loss"
    return replace(
        line,
        gain=line.quality.mean - base.quality.mean,
        beyond=beyond(line.quality, base.quality),
        loss_gain=line.loss.mean - base.loss.mean if same_pieces else None,
        loss_beyond=beyond(line.loss, base.loss) if same_pieces else None,
    )


def _row_of(job: Job, code: int) -> Row:
    if code == 0 and (job.folder / RESULT).exists():
        return read_row(job.folder / RESULT)
    said = (job.folder / SAID).read_text(encoding="utf-8") if (job.folder / SAID).exists() else ""
    last = said.strip().splitlines()[-1:] or ["nothing was said"]
    return failed(job, f"its process ended with exit code {code}: {last[0]}")


def _place(job: Job) -> Path:
    """Names a run's folder by its settings too, so that another run is never gone on with by mistake."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in job.variant.name)
    return job.prepared / "runs" / f"{letters}-{job.seed}-{digest(job.settings)}"


@in_style
def draw_ablation(found: Ablation) -> Figure:
    """Draws the variants sorted by quality, each seed a point, and the curves of validation loss."""
    lines = sorted((line for line in found.lines if line.quality), key=quality)
    figure = Drawing(figsize=(11, 1.2 + 0.26 * max(12, len(lines))))
    bars, curves = figure.subplots(1, 2, width_ratios=[1.2, 1])
    parts = list(dict.fromkeys(line.part for line in found.lines))
    colours = {part: COLOURS[at % len(COLOURS)] for at, part in enumerate(parts)}
    _draw_bars(bars, lines, found, colours)
    _draw_curves(curves, found.rows, colours)
    return figure


def quality(line: Line) -> float:
    """Gives what variants are sorted by."""
    return line.quality.mean if line.quality is not None else 0.0


def mean_curve(rows: list[Row]) -> list[tuple[float, float]]:
    """Gives steps and validation losses, averaged over the seeds that were judged there."""
    losses: dict[float, list[float]] = {}
    for row in rows:
        for found in row.curve:
            losses.setdefault(float(found["step"]), []).append(found["loss"])
    return [(step, sum(values) / len(values)) for step, values in sorted(losses.items())]


def _draw_bars(axes: Axes, lines: list[Line], found: Ablation, colours: dict[str, str]) -> None:
    by_variant = {line.variant: at for at, line in enumerate(lines)}
    for at, line in enumerate(lines):
        deviation = line.quality.spread if line.quality is not None else 0.0
        axes.errorbar([quality(line)], [at], xerr=[deviation], fmt="o", color=colours[line.part], markersize=5)
    for row in found.rows:
        value = row.bleu_test if found.measured_on == "test" else row.bleu_valid
        if value is not None and row.variant in by_variant:
            axes.plot([value], [by_variant[row.variant]], "|", color="black", markersize=6, alpha=0.6)
    base = next((line for line in lines if line.variant == BASELINE), None)
    if base is not None:
        axes.axvline(quality(base), color="black", linewidth=0.5)
    axes.set_yticks(range(len(lines)), [line.variant for line in lines])
    axes.set(title=f"BLEU on the {found.measured_on}: mean ± deviation, strokes: seeds", xlabel="BLEU")
    axes.grid(axis="x", alpha=0.2)


def _draw_curves(axes: Axes, rows: list[Row], colours: dict[str, str]) -> None:
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


def ablate_table(found: Ablation) -> Table:
    """Lists the variants: quality with its spread, the difference to the baseline, loss, speed and size."""
    seeds = sorted({seed for line in found.lines for seed in line.seeds})
    same = "Same data, same budget" if found.same_data else "Same budget"
    title = f"{same}, one part exchanged; seeds {', '.join(map(str, seeds)) or 'none'}"
    caption = (
        f"BLEU on the {found.measured_on}, and loss a token on the validation text: means ± standard deviations over "
        "seeds, and differences to the baseline. * is beyond chance: Welch's t-test, 5 %, each by itself."
    )
    table = Table(title=title, caption=caption + _unfinished(found), **QUIET)
    heads = ("part", "variant", "BLEU", "differ-\nence", "loss", "differ-\nence", "tokens/s", "param-\neters", "seeds")
    for at, head in enumerate(heads):
        table.add_column(head, justify="left" if at < 2 else "right")
    for line in found.lines:
        table.add_row(*_cells(line))
    return table


def failures(found: Ablation) -> list[str]:
    """Lists what failed, and why; seeds that failed alike are told of together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in sorted(found.rows, key=lambda row: row.seed):
        if row.error is not None:
            alike.setdefault((row.variant, row.error), []).append(str(row.seed))
    return [
        f"{name}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}: {error}"
        for (name, error), seeds in alike.items()
    ]


def _cells(line: Line) -> tuple[str, ...]:
    if line.quality is None or line.loss is None:
        return line.part, line.variant, "failed", *("–" for _ in range(5)), "0"
    speed = "–" if line.speed is None else f"{line.speed.mean:,.0f}"
    gains = _gain(line.gain, line.beyond, 2), _gain(line.loss_gain, line.loss_beyond, 3)
    sizes = "–" if line.parameters is None else f"{line.parameters:,}"
    quality = (said(line.quality, 2), gains[0], said(line.loss, 3), gains[1])
    return line.part, line.variant, *quality, speed, sizes, str(len(line.seeds))


def _gain(gain: float | None, beyond: bool | None, digits: int) -> str:
    return "–" if gain is None else f"{gain:+.{digits}f}{MARKS[beyond]}".replace("-", "−")


def _unfinished(found: Ablation) -> str:
    return f" {found.missing} runs are missing: the same command goes on." if found.missing else ""

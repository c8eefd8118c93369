"""Studies as tables in the terminal."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from regard.score.bleu import Scores
from regard.study.laws import Law
from regard.study.positions import PositionReport
from regard.study.regression import Regression
from regard.study.scores import ScoresStudy
from regard.zoo.catalogue import Entry

LAWS = {
    "unique": "unique",
    "bounded": "bounded",
    "deterministic": "fixed",
    "even_steps": "even\nsteps",
    "distance_only": "by dis-\ntance",
    "symmetric": "sym-\nmetric",
    "shift": "linear\nshift",
}

CAPTION = (
    "✓ holds, ✗ does not, – nothing to measure. unique: smallest distance of two codes; bounded: largest number in a "
    "code; fixed: difference of two random starts; even steps: change of a step when the text is twice as long; by "
    "distance: spread of PE(p)·PE(q) at equal p − q; symmetric: against PE(q)·PE(p); linear shift: residual of one "
    "matrix that takes PE(p) to PE(p + 1)."
)
QUIET: Any = {
    "box": SIMPLE_HEAD,
    "title_justify": "left",
    "caption_justify": "left",
    "title_style": "bold",
    "pad_edge": False,
    "show_edge": False,
    "padding": (0, 1, 0, 0),
}


def regression_table(result: Regression) -> Table:
    """Lists the three poolings and their errors."""
    table = Table(title=f"Kernel regression, {len(result.x)} points, seed {result.seed}", **QUIET)
    for column in ("pooling", "w", "mean squared error"):
        table.add_column(column, justify="left" if column == "pooling" else "right")
    table.add_row("average of all points", "–", f"{result.average.error:.4f}")
    table.add_row("Gaussian kernel, fixed", "1.00", f"{result.fixed.error:.4f}")
    table.add_row("Gaussian kernel, learned", f"{result.w:.2f}", f"{result.learned.error:.4f}")
    return table


def scores_table(study: ScoresStudy) -> Table:
    """Lists what each score made of the same vectors."""
    title = f"The same {len(study.queries)} queries and {len(study.keys)} keys, width {study.width}, seed {study.seed}"
    table = Table(title=title, **QUIET)
    for column in ("score", "mean", "std", "entropy of weights", "largest weight"):
        table.add_column(column, justify="left" if column == "score" else "right")
    for report in study.scores:
        numbers = (report.mean, report.std, report.entropy, report.largest)
        table.add_row(report.name, *(f"{number:.3f}" for number in numbers))
    return table


def variances_table(study: ScoresStudy) -> Table:
    """Lists what the width does to dot products of unit-variance vectors."""
    table = Table(title="Why √d: dot products of unit-variance vectors", **QUIET)
    for column in ("width", "variance of qᵀk", "… of qᵀk/√d", "largest weight", "… scaled", "α(1 − α)", "… scaled"):
        table.add_column(column, justify="right")
    for v in study.variances:
        weights = (f"{v.largest_dot:.3f}", f"{v.largest_scaled:.3f}", f"{v.slope_dot:.5f}", f"{v.slope_scaled:.5f}")
        table.add_row(str(v.width), f"{v.dot:.1f}", f"{v.scaled:.3f}", *weights)
    return table


def positions_table(reports: list[PositionReport], length: int, width: int) -> Table:
    """Lists the laws for each scheme, side by side, narrow enough for 80 columns."""
    table = Table(title=f"Laws of positions at length {length}, width {width}", caption=CAPTION, **QUIET)
    table.add_column("scheme", no_wrap=True)
    for title in (*LAWS.values(), "param-\neters"):
        table.add_column(title, justify="right", no_wrap=True)
    for report in reports:
        cells = [_cell(getattr(report, law)) for law in LAWS]
        table.add_row(report.name, *cells, f"{report.cost.scheme:,}")
    return table


def facts_table(report: PositionReport) -> Table:
    """Lists what is worth knowing of one scheme beyond the laws."""
    table = Table(title=f"More about {report.name}", **QUIET, show_header=False)
    table.add_row(
        "acts on",
        {"embed": "token vectors", "rotate": "queries and keys", "bias": "scores"}.get(report.door, "nothing"),
    )
    if report.waves is not None:
        waves = report.waves
        table.add_row("wavelengths", f"{waves.shortest:.4f} … {waves.longest:,.1f} positions")
        table.add_row("ratio of neighbours", f"constant up to {waves.geometric:.1e}")
        if waves.pairs_per_halving is not None:
            table.add_row(
                "like a binary counter", f"half as many flips every {waves.pairs_per_halving:.2f} pairs (a counter: 1)"
            )
    if report.circles.holds:
        table.add_row("pairs of features", "stay on circles")
    if report.half_distance is not None:
        table.add_row("product halves at distance", str(report.half_distance))
    if report.distinct_up_to is not None:
        table.add_row("codes differ", f"for all positions 0 … {report.distinct_up_to:,}")
    if report.cost.layer_concatenated is not None:
        added, wide = report.cost.layer_added, report.cost.layer_concatenated
        table.add_row(
            "attention layer above", f"{added:,} parameters if added, {wide:,} if set beside an equally wide vector"
        )
    return table


def result_table(result: Scores) -> Table:
    """Lists scores with what they were measured by."""
    table = Table(title=f"{result.n:,} sentences", **QUIET)
    for column in ("score", "value", "signature"):
        table.add_column(column, justify="right" if column == "value" else "left")
    table.add_row("BLEU", f"{result.bleu:.2f}", result.bleu_signature)
    table.add_row("chrF", f"{result.chrf:.2f}", result.chrf_signature)
    return table


def info_table(found: dict[str, Any]) -> Table:
    """Lists what a model is."""
    table = Table(title="Model", show_header=False, **QUIET)
    form = f"{found['precision']}, {found['bytes'] / 2**20:.1f} MiB in {found['shards']} file"
    table.add_row("parameters", f"{found['parameters']:,} as {form}{'s' * (found['shards'] > 1)}")
    table.add_row("pieces", f"{found['vocabulary']['src']:,} source, {found['vocabulary']['tgt']:,} target")
    for name in ("data", "text", "model", "decode"):
        for key, value in found["settings"][name].items():
            table.add_row(f"{name}.{key}", str(value))
    for name, value in found["scores"].items():
        table.add_row(f"scores.{name}", str(value))
    return table


def models_table(entries: list[Entry]) -> Table:
    """Lists the models that come with the package, and below them their licences, which may be many."""
    licences = "\n".join(f"{each.name}: {each.licence or 'no licence is named'}" for each in entries)
    table = Table(title="Models that come with the package", caption=f"Licences\n{licences}", **QUIET)
    for column in ("name", "from", "to", "family", "parameters", "MiB", "BLEU"):
        right = column in {"parameters", "MiB", "BLEU"}
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    for each in entries:
        bleu = "–" if each.bleu is None else f"{each.bleu:.1f} ({each.measured_on})"
        sizes = f"{each.parameters:,}", f"{each.mib:.1f}", bleu
        table.add_row(each.name, each.src_lang, each.tgt_lang, each.family, *sizes)
    return table


def _cell(law: Law) -> Text:
    if law.value is None:
        return Text("–", style="dim")
    mark, colour = ("✓", "green") if law.holds else ("✗", "red")
    return Text(f"{_short(law.value)} {mark}", style=colour)


def _short(number: float) -> str:
    """Writes a number in five characters; what float64 cannot tell from 0 is about 0."""
    if 0 < number < 1e-12:
        return "≈0"
    if number == 0 or number >= 100:
        return f"{number:.0f}"
    return f"{number:.2g}" if number >= 0.01 else f"{number:.0e}"

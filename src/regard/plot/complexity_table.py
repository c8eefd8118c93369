"""What layers cost, as tables in the terminal."""

from rich.table import Table

from regard.plot.table import QUIET
from regard.study.complexity import ComplexityStudy, Curve, LayerReport
from regard.study.power import Fit

CAPTION = (
    "Exponents by least squares in logarithms over the largest sizes: what was counted, what time and memory did, and "
    "in brackets what the theory says. Steps and path: rounds of parallel work at the greatest length that was tried."
)


def laws_table(study: ComplexityStudy) -> Table:
    """Lists operations, steps, path and exponents of each layer."""
    n = study.settings.depths[-1]
    title = f"Layers over n × d inputs, convolution of width k = {study.settings.k}"
    table = Table(title=title, caption=CAPTION, **QUIET)
    heads = (
        "layer",
        "opera-\ntions",
        "n: counted",
        "time",
        "memory",
        "d: counted",
        "time",
        f"steps,\nn = {n}",
        f"path,\nn = {n}",
    )
    for head in heads:
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    for layer in study.layers:
        depth = layer.depths[-1]
        steps, path = f"{depth.steps} ({layer.steps})", f"{depth.path} ({layer.path})"
        memory = "–" if layer.by_n.bytes is None else f"{layer.by_n.bytes.exponent:.2f}"
        by_n = (_counted(layer.by_n), _exponent(layer.by_n.time), memory)
        by_d = (_counted(layer.by_d), _exponent(layer.by_d.time))
        table.add_row(layer.name, layer.formula, *by_n, *by_d, steps, path)
    return table


def sizes_table(study: ComplexityStudy, axis: str) -> Table:
    """Lists the time and the memory of each layer at each size along one axis."""
    curves = {layer.name: curve_of(layer, axis) for layer in study.layers}
    first = next(iter(curves.values())).points[0]
    other = f"d = {first.d}" if axis == "n" else f"n = {first.n}"
    title = f"One pass, batches of {first.batch}, {other}: milliseconds, and peak MiB beyond the input"
    table = Table(title=title, **QUIET)
    table.add_column("layer")
    sizes = sorted({getattr(point, axis) for curve in curves.values() for point in curve.points})
    for size in sizes:
        table.add_column(f"{axis} = {size}", justify="right")
    table.add_column("fit over", justify="right")
    for name, curve in curves.items():
        found = {getattr(point, axis): point for point in curve.points}
        cells = [_cell(found[size].time.median, found[size].bytes) if size in found else "–" for size in sizes]
        table.add_row(name, *cells, f"{curve.time.low} … {curve.time.high}")
    return table


def paces_table(study: ComplexityStudy) -> Table:
    """Lists tokens per second of each way of training at each length."""
    race = study.settings.race
    title = f"Training steps of the preset {race.preset}, {race.slots:,} target tokens a batch: target tokens/s"
    table = Table(title=title, **QUIET)
    table.add_column("way")
    for length in race.lengths:
        table.add_column(f"{length} a sentence", justify="right")
    for way in dict.fromkeys(pace.way for pace in study.paces):
        found = {pace.length: pace for pace in study.paces if pace.way == way}
        table.add_row(way, *(f"{found[length].tokens_per_second:,.0f}" for length in race.lengths))
    return table


def complexity_tables(study: ComplexityStudy) -> list[Table]:
    """Gives all tables."""
    return [laws_table(study), sizes_table(study, "n"), sizes_table(study, "d"), paces_table(study)]


def curve_of(layer: LayerReport, axis: str) -> Curve:
    """Gives a layer's curve along one axis."""
    return layer.by_n if axis == "n" else layer.by_d


def _counted(curve: Curve) -> str:
    theory = "" if curve.theory is None else f" ({curve.theory:g})"
    return f"{curve.operations.exponent:.2f}{theory}"


def _exponent(fit: Fit) -> str:
    return f"{fit.exponent:.2f}"


def _cell(seconds: float, n_bytes: int | None) -> str:
    memory = "" if n_bytes is None else f" · {n_bytes / 2**20:,.0f}"
    return f"{1e3 * seconds:,.3g}{memory}" if seconds < 1 else f"{1e3 * seconds:,.0f}{memory}"

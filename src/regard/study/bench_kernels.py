"""Kernels on a GPU beside formulas and peers, on the page of measurements."""

from typing import Any

from rich.table import Table

from regard.study.bench_section import Bar, Bars, Lines, Record, Section, line
from regard.study.bench_table import LEAST, Contest, Number, Row, contests, make_table, number, spread

PLAIN = "no bias"  # computes less than the others, and shows what a bias costs
ASIDE = {"signature", "rates", "accuracy", "growth", "limits", "shapes"}


def kernels_section(record: Record) -> Section:
    """Shows whatever parts the file has: of each the versions, forward alone and with backward."""
    tables: list[Table] = []
    panels: list[Bars | Lines] = []
    notes: list[str] = []
    found: list[Contest] = []
    for name, part in record.items():
        if name in ASIDE or not is_part(part):
            continue
        versions = {version: row for version, row in part.items() if isinstance(row, dict) and is_version(row)}
        limits = {**record.get("limits", {}).get(name, {}), **(part.get("limits") or {})}
        tables.append(_table(name, versions, limits))
        panels.append(_bars(name, versions, limits))
        rows = [Row(version, _cells(row, limits)) for version, row in versions.items() if version != PLAIN]
        found += contests(f"kernel, {name}, forward, ms", rows, 0, LEAST)
        found += contests(f"kernel, {name}, with backward, ms", rows, 1, LEAST)
        notes += [
            f"{name}, {version}: {row['failed'].splitlines()[0]}"
            for version, row in versions.items()
            if row.get("failed")
        ]
    panels += growth_panels(record.get("growth", {}))
    if record.get("accuracy"):
        tables.append(accuracy_table(record["accuracy"]))
    if record.get("rates"):
        notes.insert(0, f"Rates measured in the same run: {', '.join(_rates(record['rates']))}.")
    picture = "Milliseconds of each version, forward and backward; growth over the length with fitted powers"
    return Section(tables, panels, 2, picture, notes, found)


def is_version(row: Record) -> bool:
    """Tells a version's numbers from other tables in a file."""
    return any(key in row for key in ("forward", "both", "failed"))


def is_part(part: Any) -> bool:
    """Tells a part with versions beside each other from whatever else a file has."""
    return isinstance(part, dict) and any(isinstance(row, dict) and is_version(row) for row in part.values())


def _table(name: str, versions: dict[str, Record], limits: Record) -> Table:
    rows = [Row(version, _cells(row, limits)) for version, row in versions.items()]
    if limits:
        shown = [Number(number(limits.get(key)).text) for key in ("forward", "both")]
        rows.append(Row("the limit", [*shown, Number(""), Number("")]))
    heads = ("version", "forward, ms", "with backward, ms", "share of the limit", "extra MiB")
    return make_table(name, heads, rows, [LEAST, LEAST, None, LEAST])


def _cells(row: Record, limits: Record) -> list[Number]:
    if row.get("failed"):
        return [Number("did not run"), *[number(None)] * 3]
    forward, both = row.get("forward", {}), row.get("both", {})
    share = limits["both"] / both["ms"] if limits.get("both") and both.get("ms") else None
    times = [spread(each.get("ms"), each.get("low"), each.get("high")) for each in (forward, both)]
    return [*times, Number("–" if share is None else f"{100 * share:.0f} %"), number(row.get("extra_mib"), ",.0f")]


def _bars(name: str, versions: dict[str, Record], limits: Record) -> Bars:
    found = {version: row["both"] for version, row in versions.items() if row.get("both", {}).get("ms")}
    bars = [Bar(version, both["ms"], both.get("low"), both.get("high")) for version, both in found.items()]
    return Bars(f"{name}, forward + backward: ms", bars, limits.get("both"), log=True)


def growth_panels(growth: dict[str, Any]) -> list[Lines]:
    """Draws time and memory over the length."""
    curves = {name: rows for name, rows in growth.items() if isinstance(rows, list) and rows}
    panels = []
    for title, key in (("Time over the length: ms", "ms"), ("Peak memory over the length: MiB", "extra_mib")):
        lines = [
            line(name, [row.get("length") for row in rows], [row.get(key) for row in rows])
            for name, rows in curves.items()
        ]
        panels += [Lines(title, "tokens of a text", "n", lines)] if lines else []
    return panels


def accuracy_table(versions: dict[str, Record]) -> Table:
    """Lists relative distances from the definition in float64."""
    names = list(dict.fromkeys(name for row in versions.values() for name in row))
    rows = [Row(version, [number(row.get(name), ".1e") for name in names]) for version, row in versions.items()]
    title = "Relative distance from the definition in float64"
    return make_table(title, ("version", *names), rows, [LEAST] * len(names))


def _rates(rates: Record) -> list[str]:
    """Writes rates, which may be nested, in T a second."""
    told = []
    for name, rate in rates.items():
        inner = {f"{name} {key}": value for key, value in rate.items()} if isinstance(rate, dict) else {name: rate}
        told += [f"{key} {value / 1e12:.3g} T/s" for key, value in inner.items() if isinstance(value, (int, float))]
    return told

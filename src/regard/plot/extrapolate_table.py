"""How position schemes fare beyond the lengths that they learned from, as a table in the terminal."""

from rich.table import Table

from regard.plot.table import QUIET
from regard.study.extrapolate import ExtrapolateStudy, Length
from regard.study.spread import Spread


def extrapolate_table(study: ExtrapolateStudy) -> Table:
    """Lists loss and accuracy of each scheme at each length."""
    settings = study.settings
    least = ", ".join(f"{loss:.3f} at {length}" for length, loss in study.least.items())
    caption = (
        "Loss: mean −log p of a token, ± standard deviation over seeds; then its ratio to the loss at n, then the "
        f"share of tokens that the likeliest symbol gets right. The least loss there can be: {least}."
    )
    title = f"Task {settings.task}, learned at lengths up to n = {settings.longest}, {settings.n_seeds} seeds"
    table = Table(title=title, caption=caption, **QUIET)
    table.add_column("scheme", no_wrap=True)
    for fold, length in enumerate(study.schemes[0].lengths, start=1):
        times = "n" if fold == 1 else f"{fold}n"
        table.add_column(f"{times} = {length.length}", justify="right")
    for scheme in study.schemes:
        table.add_row(scheme.name, *(_cell(length) for length in scheme.lengths))
    return table


def _cell(length: Length) -> str:
    if length.loss is None or length.ratio is None or length.accuracy is None:
        return "not defined"
    return f"{said(length.loss, 3)} · ×{length.ratio.mean:.2f} · {length.accuracy.mean:.0%}"


def said(value: Spread, digits: int) -> str:
    """Writes a mean with its deviation."""
    deviation = "" if value.n < 2 else f" ± {value.spread:.{digits}f}"
    return f"{value.mean:.{digits}f}{deviation}"

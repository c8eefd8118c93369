"""What a probe tells of positions, as tables in the terminal."""

from rich.table import Table

from regard.plot.table import QUIET
from regard.study.position_probe import ProbeStudy, Reading, SmallReadings
from regard.study.spread import Spread

CAPTION = (
    "R² on held-out sentences, mean ± standard deviation over the splits. place: the token's number; share: its place "
    "between the first word, 0, and the last, 1; shuffled: places in another order, where there is nothing to find."
)
SMALL_CAPTION = (
    "R² of the place, over splits and seeds; loss: what a held-out token costs, in nats. Without residual connections "
    "each sub-layer's output replaces the stream."
)
# By whether there are residual connections, and whether anything was learned.
KINDS = {
    (True, True): "with",
    (False, True): "without",
    (True, False): "with, untaught",
    (False, False): "without, untaught",
}


def probe_table(study: ProbeStudy) -> Table:
    """Lists the stream of both stacks, and what words and codes tell alone."""
    title = f"Where is position? {study.model}, {study.scheme} positions, {study.n_pairs} pairs"
    table = _table(title, CAPTION, ("stack", "where", "place", "share", "shuffled"), n_names=2)
    for stack in study.stacks:
        alone = [("codes alone", stack.codes), ("words alone", stack.words)]
        named = [(reading.point, reading) for reading in stack.points]
        for name, reading in [*((name, found) for name, found in alone if found is not None), *named]:
            table.add_row(stack.stack, name, *_cells(reading))
    return table


def updates_table(study: ProbeStudy) -> Table:
    """Lists what each sub-layer writes into the stream, read by itself."""
    title = f"Without the stream: what the sub-layers of {study.model} write"
    table = _table(title, "", ("stack", "sub-layer", "place", "share", "shuffled"), n_names=2)
    for stack in study.stacks:
        for reading in stack.updates:
            table.add_row(stack.stack, reading.point, *_cells(reading))
    return table


def small_table(study: ProbeStudy) -> Table:
    """Lists the small models side by side, layer by layer."""
    small, kinds = study.settings.small, {kind(each): each for each in study.small}
    taught = f"{small.steps} steps, width {small.d_model}, seeds: {study.settings.small_seeds}"
    title = f"Small models with and without residual connections, taught on the same pairs: {taught}"
    table = _table(title, SMALL_CAPTION, ("stack", "where", *KINDS.values()), n_names=2)
    for number, stack in enumerate(kinds[True, True].stacks):
        for point, reading in enumerate(stack.points):
            found = [kinds[which].stacks[number].points[point].place for which in KINDS]
            table.add_row(stack.stack, reading.point, *map(short, found))
    table.add_row("both", "loss", *(short(kinds[which].loss) for which in KINDS))
    return table


def kind(small: SmallReadings) -> tuple[bool, bool]:
    """Says of which kind small models are: with residuals, and taught."""
    return small.residual, small.trained


def short(number: Spread) -> str:
    """Writes a mean with its spread in few characters."""
    return f"{number.mean:.2f} ± {number.spread:.2f}".replace("-", "−")


def _table(title: str, caption: str, columns: tuple[str, ...], n_names: int) -> Table:
    table = Table(title=title, caption=caption or None, **QUIET)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < n_names else "right")
    return table


def _cells(reading: Reading) -> list[str]:
    return [short(each) for each in (reading.place, reading.share, reading.shuffled)]

"""What each word of a translation looked at, as a table in the terminal."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from rich.table import Table
from rich.text import Text

from regard.plot.table import QUIET
from regard.plot.words import readable


def looked_at_table(
    weights: Float[np.ndarray, "T S"],
    src: Sequence[str],
    tgt: Sequence[str],
    most: int = 3,
    title: str = "What each word looked at",
) -> Table:
    """Lists each target word with the source words of the largest shares, the largest first."""
    if weights.shape != (len(tgt), len(src)):
        raise ValueError(
            f"weights must have a row for each target word and a column for each source word, "
            f"got {weights.shape} and {len(tgt)} target, {len(src)} source words"
        )
    if most < 1:
        raise ValueError(f"most must be 1 or more, got {most}")
    table = Table(title=title, **QUIET)
    table.add_column("output", no_wrap=True)
    for rank in range(min(most, len(src))):
        table.add_column("looked at" if rank == 0 else "", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    for word, row in zip(tgt, weights, strict=True):
        best: list[int] = np.argsort(-row, kind="stable")[:most].tolist()
        table.add_row(Text(readable(word), "bold"), *(cell for at in best for cell in _cells(src[at], float(row[at]))))
    return table


def _cells(word: str, share: float) -> tuple[Text, Text]:
    """Gives a word with its share, both fainter where there is little of it, and nothing where there is none."""
    if share < 0.005:
        return Text(), Text()
    look = "" if share >= 0.1 else "dim"
    return Text(readable(word), look), Text(f"{share:.0%} ", look)

"""One head's weights, or the terms of its scores, as numbers in the terminal."""

from collections.abc import Sequence

from jaxtyping import Float
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.plot.table import QUIET
from regard.plot.words import readable, shorten
from regard.trace.terms import Terms


def numbers_table(
    values: Float[Tensor, "Q K"], queries: Sequence[str], keys: Sequence[str], title: str, caption: str = ""
) -> Table:
    """Lists a row for each query and a column for each key; the largest of each row stands out."""
    table = Table(title=title, caption=caption or None, **QUIET)
    table.add_column("", no_wrap=True)
    for key in keys:
        table.add_column(shorten(readable(key), 6), justify="right", no_wrap=True)
    for query, row in zip(queries, values.tolist(), strict=True):
        cells = (Text(f"{value:.2f}", "bold" if value == max(row) else "") for value in row)
        table.add_row(Text(readable(query), "bold"), *cells)
    return table


def terms_tables(terms: Terms, queries: Sequence[str], keys: Sequence[str]) -> list[Table]:
    """Lists each term, and the score that they add up to."""
    tables = [numbers_table(term, queries, keys, name) for name, term in zip(terms.names, terms.terms, strict=True)]
    off = f"the terms add up to it but for {terms.error:.1e} of the largest score"
    return [*tables, numbers_table(terms.total, queries, keys, "score", off)]

"""How spread out each head looks, as a map in the terminal."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from regard.plot.table import QUIET
from regard.trace.summary import Spread

BLOCKS = "▁▂▃▄▅▆▇█"
CAPTION = "one block for each head: ▁ looks at one token, █ at all alike (mean entropy as a share of the largest)"


def spread_table(layers: Sequence[Spread], title: str = "How spread out each head looks") -> Table:
    """Lists the kinds of attention, a column for each layer, a block for each head."""
    kinds = list(dict.fromkeys(each.kind for each in layers))
    depth = max((each.layer for each in layers), default=-1) + 1
    table = Table(title=title, caption=CAPTION, **QUIET)
    table.add_column("attention", no_wrap=True)
    for layer in range(depth):
        table.add_column(f"layer {layer}", no_wrap=True)
    for kind in kinds:
        rows = {each.layer: each.heads for each in layers if each.kind == kind}
        table.add_row(kind, *(Text("".join(map(_block, rows.get(layer, [])))) for layer in range(depth)))
    return table


def _block(share: float) -> str:
    return BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]

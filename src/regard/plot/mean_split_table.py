"""What the stream is made of, and which of its parts carry the scores, as tables in the terminal."""

from rich.table import Table

from regard.plot.table import QUIET
from regard.study.split_scores import LayerSplit, MeanSplitStudy

CAPTION = (
    "Shares of the variance around the mean; in brackets what shuffled labels get. after words: what position gets "
    "where the means of words are taken first; context: mean of the sentence; word: mean of the piece; rest: what no "
    "mean tells. mean: length of the mean of all, as a share of a vector's."
)
SCORE_CAPTION = (
    "query–key: parts of the stream that meet in the score, with the share of its differences between keys that the "
    "pair carries, mean over the heads; error: how far the terms' sum is off, as a share of the largest score."
)
TOP = 3  # pairs of each layer that are listed


def shares_table(study: MeanSplitStudy) -> Table:
    """Lists the parts' shares along both streams."""
    table = Table(
        title=f"The stream of {study.model} as a sum of means, {study.n_pairs} pairs", caption=CAPTION, **QUIET
    )
    for number, column in enumerate(("stack", "where", "position", "after\nwords", "context", "word", "rest", "mean")):
        table.add_column(column, justify="left" if number < 2 else "right")
    for stack, points in study.shares.items():
        for each in points:
            found = zip(each.variance[:3].tolist(), each.by_chance.tolist(), strict=True)
            cells = [f"{share:.1%} ({chance:.1%})" for share, chance in found]
            length = float(each.sizes[0] / each.sizes.square().sum().sqrt())
            ends = f"{float(each.variance[3]):.1%}", f"{length:.0%}"
            table.add_row(stack, each.point, cells[0], f"{each.after_words:.1%}", *cells[1:], *ends)
    return table


def scores_table(study: MeanSplitStudy) -> Table:
    """Lists for each attention the pairs of parts that carry most of its scores."""
    table = Table(title="Which pairs of parts carry the scores", caption=SCORE_CAPTION, **QUIET)
    for number, column in enumerate(("attention", "first", "second", "third", "error")):
        table.add_column(column, justify="right" if number == 4 else "left")
    for layer in study.layers:
        pairs = [f"{name} {share:.0%}" for name, share in top_pairs(layer)]
        table.add_row(f"{layer.kind}:{layer.layer}", *pairs, f"{layer.error:.0e}")
    return table


def heads_table(study: MeanSplitStudy) -> Table:
    """Lists for each head the two pairs that carry most."""
    table = Table(title="The two strongest pairs of each head", **QUIET)
    for number, column in enumerate(("head", "first", "share", "second", "share ")):
        table.add_column(column, justify="right" if number in {2, 4} else "left")
    for layer in study.layers:
        for head in layer.heads:
            (one, first), (other, second) = head.ranked()[:2]
            table.add_row(str(head), one, f"{first:.0%}", other, f"{second:.0%}")
    return table


def top_pairs(layer: LayerSplit, n: int = TOP) -> list[tuple[str, float]]:
    """Gives the pairs with the largest mean share over a layer's heads."""
    totals: dict[str, float] = {}
    for head in layer.heads:
        for name, share in head.ranked():
            totals[name] = totals.get(name, 0.0) + share / len(layer.heads)
    return sorted(totals.items(), key=lambda each: -each[1])[:n]

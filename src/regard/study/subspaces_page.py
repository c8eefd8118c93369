"""What the page about the subspaces of words and positions says."""

from regard.study.page import Page
from regard.study.subspaces import (
    StackSubspaces,
    SubspaceStudy,
    Table,
    angles_table,
    distinct_tables,
    n_carrying,
    points_table,
)


def subspaces_page(study: SubspaceStudy) -> Page:
    """Tells the question, the method, and what was found."""
    has_codes = any(stack.table is not None for stack in study.stacks)
    return Page(
        "Do words and positions live in nearly orthogonal subspaces?",
        "A position's code is put into the same vector as the word. That works best where the two use different "
        "directions; principal angles tell whether they do, and random subspaces what nearly orthogonal would be by "
        "chance. Then: which features of the stream carry position, layer by layer (S7.5).",
        _method(study),
        [*([angles_table(study)] if has_codes else []), points_table(study)],
        f"Principal angles between words and positions of {study.model} over those of random subspaces, and the share "
        "of each feature's variance that position explains",
        [*_tables(study), *(_stream(stack) for stack in study.stacks)],
    )


def _method(study: SubspaceStudy) -> list[str]:
    settings = study.settings
    return [
        "Words: all rows of the table but the special ones, as they enter the stream, centred. Codes: what a token of "
        "zeros becomes at each place that the model reads, centred. Subspaces: the leading directions of either, as "
        f"many as hold {settings.share:.0%} of the variance, and equal numbers. Codes that are set beside the words "
        "lie in features of their own, and are orthogonal exactly.",
        "Angles by singular values of the product of the bases, small ones by their sines (Björck and Golub 1973). "
        f"Yardstick: {settings.draws} random subspaces of the same dimensions, seed {settings.seed}. Overlap is the "
        "mean of cos²; where one of k dimensions is random in D, it is k/D on the mean.",
        f"Stream: {study.n_pairs} pairs under teacher forcing, begin and end of sentences left out. For each feature "
        "the share of its variance between places (η²), places with fewer than 5 words taken together, corrected for "
        "chance by 1 − (1 − η²)(N − 1)/(N − G). Beyond words: the same for what the means of "
        "pieces that occur 5 times or more leave. Words and places in the stream: the least-squares fit by a sum of "
        "the two, so that neither has in it what the other explains.",
    ]


def _tables(study: SubspaceStudy) -> list[str]:
    found = distinct_tables(study)
    if not found:
        return [f"{study.scheme} puts no codes into the stream, so there is no subspace of codes to compare."]
    return [_table(study, name, table) for name, table in found.items()]


def _table(study: SubspaceStudy, name: str, table: Table) -> str:
    each = table.comparisons[0]
    lies = _compared(each.overlap, each.random_overlap.mean, each.random_overlap.spread)
    where = "both stacks" if name == "both" else name
    return (
        f"{where}, before the first layer: {each.dims[0]} directions hold {study.settings.share:.0%} of the words' "
        f"variance and {each.dims[1]} that of the codes, of {each.width}. Their smallest angle is "
        f"{float(each.angles[0]):.1f}°, of random subspaces {float(each.random_angles[0]):.1f}°; they overlap by "
        f"{each.overlap:.3f}, random ones by {each.random_overlap.mean:.3f}: {lies}. The root mean square cosine of a "
        f"word and a code is {table.cosine:.3f}, of random vectors {table.random_cosine:.3f}."
    )


def _compared(found: float, random: float, spread: float) -> str:
    if abs(found - random) <= 3 * spread:
        return "as near as chance would have it"
    times = f"{abs(found - random) / spread:.0f} deviations" if spread > 0 else "far"
    return f"{'further apart' if found < random else 'nearer'} than chance by {times}"


def _stream(stack: StackSubspaces) -> str:
    first, last = stack.points[0], stack.points[-1]
    return (
        f"{stack.stack}, in the stream: position explains {first.total:.1%} of the variance at the embedding and "
        f"{last.total:.1%} after the last layer, {first.beyond_words:.1%} and {last.beyond_words:.1%} beyond what "
        f"words tell; half of the former is in {n_carrying(first.shares)} and {n_carrying(last.shares)} of "
        f"{len(first.shares)} features. What words and what places bring to the stream overlap by "
        f"{first.comparison.overlap:.3f} and {last.comparison.overlap:.3f}, by chance "
        f"{first.comparison.random_overlap.mean:.3f} and {last.comparison.random_overlap.mean:.3f}."
    )

"""What the page about taking heads out says."""

from regard.study.page import Page
from regard.study.pruning import ALLOWED_LOSS, Curve, PruneStudy, importance_table, pruning_table


def pruning_page(study: PruneStudy) -> Page:
    """Tells the question, the method, and what was found."""
    return Page(
        "How many heads does a model need?",
        "Heads are taken out of a trained model one after another, the least important first, and quality is measured "
        "again each time; beside it heads go in the reverse order and by chance (S7.6).",
        _method(study),
        [pruning_table(study), importance_table(study)],
        f"BLEU and loss of {study.model} against the number of heads left, and what each head is worth alone",
        [*(_curve(study, curve) for curve in study.curves), *_importance(study)],
    )


def _method(study: PruneStudy) -> list[str]:
    points, orders = len(study.curves[0].points), study.settings.random_orders
    return [
        f"Importance: by how much the loss rises on {study.n_ranked_on} pairs when a head alone is switched off "
        f"([heads.md](heads.md)). Curves: on the {study.n_pairs} other pairs, every second one of the text, so that no "
        "head is judged on what it was chosen by.",
        f"At each of {points} points all heads that are gone are switched off together, the model is packed anew, and "
        f"the sources are translated greedily. Orders by chance: {orders}, seed {study.settings.seed}. Nothing is "
        "trained after a head is gone.",
        "A head is switched off by zeros in the columns of the output map that read it; biases stay.",
    ]


def _curve(study: PruneStudy, curve: Curve) -> str:
    all_heads, enough = curve.points[0], curve.enough()
    below = [point for point in curve.points if point.n < enough]
    fallen = "" if not below else f"; with {below[0].n} it is {below[0].bleu.mean:.1f}"
    return (
        f"Removed {curve.order}: of {all_heads.n} heads, {enough} keep BLEU within {ALLOWED_LOSS:g} point of "
        f"{study.whole.bleu:.1f}{fallen}; with none it is {curve.points[-1].bleu.mean:.1f}."
    )


def _importance(study: PruneStudy) -> list[str]:
    useless = [name for name, rise in study.importance if rise <= 0]
    first = ", ".join(f"`{name}` (+{rise:.3f})" for name, rise in study.importance[:3])
    lines = [f"The heads whose loss is felt most: {first}."]
    if useless:
        lines.append(f"{len(useless)} of {len(study.importance)} heads are not missed at all when they alone are gone.")
    return lines

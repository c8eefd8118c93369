"""Small images with 2-D positions, as a page of the documentation."""

from regard.study.images import SHIFT, STRETCH, TURN
from regard.study.page import Page
from regard.study.task_page import task_page
from regard.study.task_report import TaskStudy, percent, spread_percent


def digits_page(study: TaskStudy, command: str) -> Page:
    """Says what the study asked, did and found."""
    return task_page(
        study,
        command,
        title="Small images with 2-D positions",
        question="An image is cut into patches, and each patch is a token. Must a classifier know where each patch "
        "lies, and in two coordinates (S5.4, S9.4)?",
        method=method(study),
        picture="Accuracy of each way to tell places, and test digits under the weights of each layer's heads",
        findings=findings(study),
    )


def method(study: TaskStudy) -> list[str]:
    """Says what was done."""
    side = round(study.seen[0].tokens.shape[-1] ** 0.5)
    return [
        f"scikit-learn's 1,797 handwritten digits of 8 × 8 pixels in patches of {side} × {side}, that is "
        f"{len(study.seen[0].tokens)} tokens. The split has every digit in its share and is the same in all trials.",
        f"While it is learned from, an image is shifted by up to {SHIFT:g} pixel, turned by up to {TURN:g}° and "
        f"stretched by up to {100 * STRETCH:g} %.",
        "1-D schemes are told the number of the patch in reading order.",
    ]


def findings(study: TaskStudy) -> list[str]:
    """Says what the numbers mean."""
    best = max(study.rows, key=lambda row: row.valid.mean)
    said = [
        f"{row.name}: {spread_percent(row.test)} % right on {study.n_test} images, of which one is "
        f"{percent(1 / study.n_test)}."
        for row in study.rows[:1]
    ]
    said.append(f"Best on validation: {best.name}.")
    none = study.row("none")
    if none is not None:
        said.append(
            f"A bag of patches is not nothing: with no positions at all {percent(none.test.mean)} are right, where "
            f"guessing gives {percent(study.chance)}; which strokes there are tells much of the digit."
        )
    told = [row for row in study.rows if row.coordinates]
    worst, top = min(told, key=lambda row: row.test.mean), max(told, key=lambda row: row.test.mean)
    if worst is not top:
        said.append(
            f"Among schemes that tell the place the best and the worst are {percent(top.test.mean - worst.test.mean)} "
            f"apart ({top.name}, {worst.name}), with a standard deviation over seeds of up to "
            f"{percent(max(row.test.spread for row in told))}. On so small a grid the number of a patch in reading "
            "order names its row and column too."
        )
    return said

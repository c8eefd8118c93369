"""Short video with 3-D positions, as a page of the documentation."""

from regard.study.page import Page
from regard.study.task_page import task_page
from regard.study.task_report import TaskStudy, percent, spread_percent
from regard.study.video import CELLS, FRAMES, NOISE, PACES, PIXELS, SHAPES, SIDE


def clips_page(study: TaskStudy, command: str) -> Page:
    """Says what the study asked, did and found."""
    return task_page(
        study,
        command,
        title="Short video with 3-D positions",
        question="A clip is cut into patches, and each patch of each frame is a token. Which places must a classifier "
        "know to tell the direction of a movement (S5.4, S9.4)?",
        method=method(),
        picture="Accuracy of each way to tell places, and the frames of two clips under the weights of each head",
        findings=findings(study),
    )


def method() -> list[str]:
    """Says what was done."""
    return [
        f"Clips of {FRAMES} frames of {PIXELS} × {PIXELS} pixels in patches of {SIDE} × {SIDE}: {FRAMES * CELLS**2} "
        f"tokens. A {', '.join(SHAPES[:-1])} or {SHAPES[-1]} of random size starts anywhere and moves by a patch every "
        f"frame, or every {PACES[-1]} frames, over a canvas that closes on itself, under noise of standard deviation "
        f"{NOISE:g} of the shape's brightness.",
        "Validation and test are whole orbits: the same picture in every direction, and each of these clips played "
        "backwards. In an orbit all clips have the same set of patches, noise included, and a clip has the same frames "
        "as its twin played backwards; `study/clips.py` has the proof, `tests/study/test_video.py` the test.",
        "1-D schemes are told the number of the patch in reading order, frame by frame, or as *frame* that of its "
        "frame.",
    ]


def findings(study: TaskStudy) -> list[str]:
    """Says what the numbers mean."""
    said = [f"{row.name}: {spread_percent(row.test)} % right." for row in study.rows[:1]]
    none = study.row("none")
    if none is not None:
        said.append(
            f"Without positions: {spread_percent(none.test)} %, and more than {percent(none.bound)} is impossible "
            "here. It is not that learning is too hard: the direction is not in what the model is given."
        )
    known = {"grid_2d": "where but not when", "sinusoidal:frame": "when but not where"}
    for row in study.rows:
        if row.name in known:
            said.append(
                f"Who knows {known[row.name]} ({', '.join(row.coordinates)}) gets {percent(row.test.mean)}, at most "
                f"{percent(row.bound)}."
            )
    flat = [row for row in study.rows if row.coordinates == ("index",)]
    if flat:
        numbers = ", ".join(f"{row.name} {spread_percent(row.test)} %" for row in flat)
        said.append(f"The number of a patch in reading order holds all three coordinates, but mixed: {numbers}.")
    return said

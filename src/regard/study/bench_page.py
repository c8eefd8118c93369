"""The page of measurements, made from the files that the suites left."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from regard.study.bench_attention import attention_section
from regard.study.bench_calls import trace_section, write_section
from regard.study.bench_decode import decode_section
from regard.study.bench_growth import growth_section
from regard.study.bench_kernels import kernels_section
from regard.study.bench_section import Bars, Lines, Record, Section
from regard.study.bench_serve import serve_section
from regard.study.bench_table import Contest, markdown
from regard.study.bench_train import train_section
from regard.study.bench_view import view_section
from regard.study.suite_results import Result
from regard.study.suites import SUITES, told

# In the order of the page.
SECTIONS: dict[str, tuple[str, Callable[[Record], Section]]] = {
    "attention": ("Attention layers", attention_section),
    "growth": ("How cost grows", growth_section),
    "kernels": ("Kernels", kernels_section),
    "decode": ("Decoding", decode_section),
    "train": ("Training steps", train_section),
    "write": ("Writing text", write_section),
    "serve": ("The server", serve_section),
    "view": ("The view as one file", view_section),
    "trace": ("Looking inside a run", trace_section),
}
DEVICES = {"cuda": "a GPU", "cpu": "a CPU"}
HOW = (
    "Every number here is read from the files in `benchmarks/results/`, which the suites of `regard bench` write. What "
    "is compared ran in the same run of a suite, in turn, round after round; shown are medians, in brackets the middle "
    "half of the repeats, and after a dot the share of the machine's limit, which is measured in the same run. In bold "
    "stands the best of each column, whoever's it is; systems of different precision are judged apart."
)


@dataclass(frozen=True)
class Chapter:
    """One file's section with what stands around it."""

    title: str
    result: Result
    told: list[str]  # what its script says about itself, once where it has several chapters
    section: Section


def make_chapters(results: list[Result], scripts: Path | None) -> list[Chapter]:
    """Makes a chapter of each file; one whose form is not known says so and is otherwise empty."""
    files = {(suite.name, suite.device): suite.script for suite in SUITES}
    chapters: list[Chapter] = []
    said: set[str] = set()
    for result in sorted(results, key=lambda each: list(SECTIONS).index(each.name)):
        title, make = SECTIONS[result.name]
        script = files[result.name, result.device]
        words = told(scripts / script) if scripts is not None and script not in said else []
        said.add(script)
        chapters.append(Chapter(f"{title}, on {DEVICES[result.device]}", result, words, _made(make, result.record)))
    return chapters


def _made(make: Callable[[Record], Section], record: Record) -> Section:
    try:
        section = make(record)
        return replace(section, panels=[panel for panel in section.panels if _has_something(panel)])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        return Section(
            notes=[f"The file has a form that this version does not read ({type(error).__name__}: {error})."]
        )


def _has_something(panel: Bars | Lines) -> bool:
    return bool(panel.bars if isinstance(panel, Bars) else [each for each in panel.lines if each.sizes])


def write_bench_page(chapters: list[Chapter], path: Path, command: str) -> None:
    """Writes the page, whole or not at all, once its pictures are there."""
    from regard.atomic import whole_file
    from regard.plot.style import save_figure
    from regard.study.bench_figure import draw_section

    pictures = path.parent / "images"
    for chapter in chapters:
        if chapter.section.panels:
            pictures.mkdir(exist_ok=True)
            save_figure(draw_section(chapter.section), pictures / picture_name(chapter, path.stem))
    with whole_file(path) as draft:
        draft.write_text(bench_page(chapters, path.stem, command), encoding="utf-8")


def picture_name(chapter: Chapter, stem: str) -> str:
    """Names a chapter's picture."""
    return f"{stem}-{chapter.result.name}-{chapter.result.device}.png"


def bench_page(chapters: list[Chapter], stem: str, command: str) -> str:
    """Gives the page as markdown."""
    parts = ["# Performance", HOW, f"`{command}`", *_standing(chapters)]
    for chapter in chapters:
        parts += [f"## {chapter.title}", *_chapter(chapter, stem)]
    return "\n\n".join(parts) + "\n"


def _standing(chapters: list[Chapter]) -> Iterator[str]:
    """Says how often ours is ahead, and lists where it is not."""
    every = [(chapter, contest) for chapter in chapters for contest in chapter.section.contests]
    if not every:
        return
    behind = sorted((pair for pair in every if pair[1].ratio < 1), key=lambda pair: pair[1].ratio)
    yield "## Where others are ahead"
    yield (
        f"In {len(every) - len(behind)} of {len(every)} comparisons with the best of the others ours is ahead. "
        f"{'In these it is not, the farthest behind first:' if behind else ''}"
    ).strip()
    if behind:
        yield "\n".join(_behind(chapter, contest) for chapter, contest in behind)


def _behind(chapter: Chapter, contest: Contest) -> str:
    where = f"{contest.what}, on {DEVICES[chapter.result.device]}"
    return f"- {where}: {contest.peer} {contest.theirs.text}, ours {contest.ours.text}, {_factor(contest.ratio)}"


def _factor(ratio: float) -> str:
    return f"{100 * (1 / ratio - 1):.1f} % behind" if ratio > 0.5 else f"{1 / ratio:.1f} times behind"


def _chapter(chapter: Chapter, stem: str) -> Iterator[str]:
    section, result = chapter.section, chapter.result
    yield from (f"*{chapter.told[0]}*", *chapter.told[1:]) if chapter.told else ()
    yield f"`regard bench {result.name} --device {result.device}`"
    if section.panels:
        yield f"![{section.picture}](images/{picture_name(chapter, stem)})"
        yield f"*{section.picture}.*"
    for table in section.tables:
        yield f"**{table.title}**"
        yield markdown(table)
    if section.notes:
        yield "\n".join(f"- {note}" for note in section.notes)
    told = ", ".join(f"{name} {value}" for name, value in result.record.get("signature", {}).items())
    yield f"Signature: {told or 'none'}. File: `{result.file}`."

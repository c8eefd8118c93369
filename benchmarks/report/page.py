"""The page of measurements, written from the files of results."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.report import BarPanel, LinePanel, Record, Section
from benchmarks.report.sections_kernels import attention_section, growth_section, kernels_section
from benchmarks.report.sections_serve_view import serve_section, trace_section, view_section
from benchmarks.report.sections_train_decode import decode_section, train_section, write_section
from benchmarks.report.tables import Comparison, markdown
from benchmarks.suites import SUITES, docstring_paragraphs
from regard.atomic import atomic_file

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
    "trace": ("Traces", trace_section),
}
DEVICES = {"cuda": "a GPU", "cpu": "a CPU"}
INTRODUCTION = (
    "Every number here comes from the files in `benchmarks/results/`, which the benchmark suites write. What is "
    "compared ran in the same run of a suite, interleaved round by round. Shown are medians, in brackets the middle "
    "half of the repeats, and after a dot the share of the machine's limit, which is measured in the same run. The "
    "best of each column is bold, whoever's it is; systems of different precision are judged separately."
)


@dataclass(frozen=True)
class Result:
    """One file of results; each suite has a form of its own."""

    name: str
    device: str
    record: Record

    @property
    def file(self) -> str:
        return f"{self.name}-{self.device}.json"


@dataclass(frozen=True)
class Chapter:
    """One result with its title and description."""

    title: str
    result: Result
    description: list[str]  # the docstring of its script; empty if an earlier chapter has it
    section: Section


def read_results(folder: Path) -> tuple[list[Result], list[str]]:
    """Return the results in a folder, in the order of the suites, and which files could not be read and why."""
    results, broken = [], []
    for suite in SUITES:
        path = folder / suite.result_file
        if not path.is_file():
            continue
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(record, dict):
                raise ValueError(f"one JSON object expected, got {type(record).__name__}")
            results.append(Result(suite.name, suite.device, record))
        except ValueError as error:
            broken.append(f"{path.name}: {error}")
    return results, broken


def make_chapters(results: list[Result], scripts: Path) -> list[Chapter]:
    """Return a chapter for each result; one of an unknown form is empty but for a note that says so."""
    script_of = {(suite.name, suite.device): suite.script for suite in SUITES}
    chapters: list[Chapter] = []
    described: set[str] = set()
    for result in sorted(results, key=lambda result: list(SECTIONS).index(result.name)):
        title, make = SECTIONS[result.name]
        script = script_of[result.name, result.device]
        description = [] if script in described else docstring_paragraphs(scripts / script)
        described.add(script)
        section = _make_section(make, result.record)
        chapters.append(Chapter(f"{title}, on {DEVICES[result.device]}", result, description, section))
    return chapters


def _make_section(make: Callable[[Record], Section], record: Record) -> Section:
    try:
        section = make(record)
        return replace(section, panels=[panel for panel in section.panels if not _is_empty(panel)])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        return Section(
            notes=[f"The file has a form that this version does not read ({type(error).__name__}: {error})."]
        )


def _is_empty(panel: BarPanel | LinePanel) -> bool:
    return not (panel.bars if isinstance(panel, BarPanel) else any(line.sizes for line in panel.lines))


def check_page(path: Path | None) -> None:
    """Refuse a page that could not be written, before anything is measured."""
    if path is None:
        return
    if path.suffix != ".md":
        raise ValueError(f"a page's file must end in .md, got {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"the folder for {path.name!r} does not exist: {path.parent}")
    if find_spec("matplotlib") is None:
        raise ValueError("the page has figures, and matplotlib is not installed: pip install -e '.[plot]'")


def write_page(chapters: list[Chapter], path: Path, command: str) -> None:
    """Write the figures to `images/` beside the page, then the page, whole or not at all."""
    from benchmarks.report.figures import draw_section  # matplotlib is optional
    from regard.plot.style import save_figure

    images = path.parent / "images"
    for chapter in chapters:
        if chapter.section.panels:
            images.mkdir(exist_ok=True)
            save_figure(draw_section(chapter.section), images / figure_name(chapter, path.stem))
    with atomic_file(path) as draft:
        draft.write_text(page_text(chapters, path.stem, command), encoding="utf-8")


def figure_name(chapter: Chapter, stem: str) -> str:
    """Return the file name of a chapter's figure on the page `stem.md`."""
    return f"{stem}-{chapter.result.name}-{chapter.result.device}.png"


def page_text(chapters: list[Chapter], stem: str, command: str) -> str:
    """Return the page as Markdown."""
    parts = ["# Performance", INTRODUCTION, f"`{command}`", *_where_behind(chapters)]
    for chapter in chapters:
        parts += [f"## {chapter.title}", *_chapter_text(chapter, stem)]
    return "\n\n".join(parts) + "\n"


def _where_behind(chapters: list[Chapter]) -> Iterator[str]:
    comparisons = [(chapter, comparison) for chapter in chapters for comparison in chapter.section.comparisons]
    if not comparisons:
        return
    behind = sorted((pair for pair in comparisons if pair[1].ratio < 1), key=lambda pair: pair[1].ratio)
    ahead = f"In {len(comparisons) - len(behind)} of {len(comparisons)} comparisons with the best of the others"
    yield "## Where others are ahead"
    yield f"{ahead} Regard is ahead." + (" In these it is not, the farthest behind first:" if behind else "")
    if behind:
        yield "\n".join(_behind_item(chapter, comparison) for chapter, comparison in behind)


def _behind_item(chapter: Chapter, comparison: Comparison) -> str:
    where = f"{comparison.what}, on {DEVICES[chapter.result.device]}"
    theirs, ours, ratio = comparison.theirs.text, comparison.ours.text, comparison.ratio
    distance = f"{100 * (1 / ratio - 1):.1f} %" if ratio > 0.5 else f"{1 / ratio:.1f} times"
    return f"- {where}: {comparison.peer} {theirs}, ours {ours}, {distance} behind"


def _chapter_text(chapter: Chapter, stem: str) -> Iterator[str]:
    section, result = chapter.section, chapter.result
    if chapter.description:
        yield f"*{chapter.description[0]}*"
        yield from chapter.description[1:]
    yield f"`python -m benchmarks {result.name} --device {result.device}`"
    if section.panels:
        yield f"![{section.caption}](images/{figure_name(chapter, stem)})"
        yield f"*{section.caption}.*"
    for table in section.tables:
        yield f"**{table.title}**"
        yield markdown(table)
    if section.notes:
        yield "\n".join(f"- {note}" for note in section.notes)
    signature = ", ".join(f"{name} {value}" for name, value in result.record.get("signature", {}).items())
    yield f"Signature: {signature or 'none'}. File: `{result.file}`."

"""The command that runs the suites which set us beside others: bench."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json, app
from regard.cli.study_page import Doc, Quick
from regard.plot.terminal import escaped, print_json, print_tables, say
from regard.study.page import check_page

if TYPE_CHECKING:
    from regard.study.bench_page import Chapter
    from regard.study.suite_run import Outcome
    from regard.study.suites import Suite


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Suites to run.", show_default="all of the device")] = None,
    device: Device = "auto",
    quick: Quick = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of the results.", show_default="benchmarks/results; with --quick a temporary one"),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing: show what the folder has, from any machine.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Run nothing: list the suites.")] = False,
    json_: Json = False,
    doc: Doc = None,
) -> None:
    """Runs the suites that set us beside others, each as its own process, and makes a page of what they measured."""
    from regard.study.suites import SUITES, choose_suites, find_scripts

    check_page(doc)
    scripts = find_scripts()
    if list_:
        from regard.study.bench_list import suites_table

        return print_json(SUITES) if json_ else print_tables(suites_table(SUITES, scripts))
    folder = results or _usual_folder(scripts, quick)
    outcomes, left = (
        ([], []) if show else _run(choose_suites(names or [], _kind(device)), scripts, folder, quick, json_)
    )
    chapters = _chapters(folder, names if show else None, scripts)
    if doc is not None:
        from regard.study.bench_page import write_bench_page

        where = doc.name if doc.is_absolute() else doc.as_posix()
        write_bench_page(chapters, doc, f"regard bench --show --doc {where}{' (of a run with --quick)' * quick}")
        say(f"[dim]page written to[/] {escaped(str(doc))}")
    failed = [each for each in outcomes if each.code]
    if json_:
        kept = {chapter.result.file: chapter.result.record for chapter in chapters}
        print_json({"folder": str(folder), "suites": outcomes, "left_out": left, "results": kept})
    elif show:
        print_tables(*(table for chapter in chapters for table in _titled(chapter)))
    else:
        _tell_end(outcomes, folder)
    if failed or (names and left):
        raise typer.Exit(1)


def _kind(device: str) -> str:
    from regard.train.run import choose_device

    return choose_device(device).type


def _usual_folder(scripts: Path | None, quick: bool) -> Path:
    """Gives the folder of published results; a quick run's go elsewhere, for they are no figures to keep."""
    if quick:
        from tempfile import gettempdir

        return Path(gettempdir()) / "regard-bench"
    if scripts is None:
        raise ValueError(_get_them())
    return scripts / "results"


def _get_them() -> str:
    from regard.study.suites import GET_THEM

    return GET_THEM


def _run(
    suites: "list[Suite]", scripts: Path | None, folder: Path, quick: bool, json_: bool
) -> "tuple[list[Outcome], list[str]]":
    """Runs one suite after another; what cannot run here is said, and what fails does not stop the others."""
    from regard.study.suite_run import run_suite
    from regard.study.suites import lacking

    if scripts is None:
        raise ValueError(_get_them())
    folder.mkdir(parents=True, exist_ok=True)
    outcomes, left = [], []
    tell = say_plainly if json_ else print_plainly
    for suite in suites:
        why = lacking(suite, scripts)
        if why is not None:
            left.append(f"{suite.name}: {why}")
            say(f"[yellow]{suite.name} left out:[/] {escaped(why)}")
            continue
        say(f"[bold]{suite.name}[/] [dim]on {suite.device}[/]")
        outcome = run_suite(suite, scripts, folder, quick, tell)
        outcomes.append(outcome)
        if outcome.code:
            say(f"[bold red]{suite.name} failed[/] with exit code {outcome.code}; its last lines:")
            for line in outcome.last:
                say(f"  {escaped(line)}")
    return outcomes, left


def print_plainly(line: str) -> None:
    """Passes a suite's line on as it is."""
    print(line, flush=True)


def say_plainly(line: str) -> None:
    """Passes a suite's line on beside a result that programs read."""
    import sys

    print(line, file=sys.stderr, flush=True)


def _chapters(folder: Path, names: list[str] | None, scripts: Path | None) -> "list[Chapter]":
    """Reads what the folder has; a file that cannot be read is said, and left out."""
    from regard.study.bench_page import make_chapters
    from regard.study.suite_results import read_results

    found, broken = read_results(folder)
    for why in broken:
        say(f"[yellow]left out:[/] {escaped(why)}")
    wanted = [result for result in found if not names or result.name in names]
    if not wanted:
        say(f"[yellow]there are no results in[/] {escaped(str(folder))}")
    return make_chapters(wanted, scripts)


def _titled(chapter: "Chapter") -> list:
    """Gives a chapter's tables, the first under the chapter's name."""
    for table in chapter.section.tables:
        table.title = f"{chapter.title}: {table.title}"
    return list(chapter.section.tables)


def _tell_end(outcomes: "list[Outcome]", folder: Path) -> None:
    for each in outcomes:
        end = f"[red]failed, exit code {each.code}[/]" if each.code else "done"
        say(f"{each.suite}: {end} after {each.seconds:,.0f} s")
    say(f"[dim]results in[/] {escaped(str(folder))}")

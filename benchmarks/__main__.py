"""Run benchmark suites and report what they measured: `python -m benchmarks`, from a clone of the repository."""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, TextIO

import torch
import typer
from rich.table import Table

from benchmarks.report.page import Chapter, check_page, make_chapters, read_results, write_page
from benchmarks.suites import SCRIPTS, SUITES, Suite, choose_suites, docstring_paragraphs, unmet_requirement
from regard.device import find_device
from regard.terminal import QUIET, escape, message, print_json, print_tables

N_LAST_LINES = 15  # of the output of a suite that failed

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True)
class Outcome:
    """How a suite ended; field names are those of `--json`."""

    suite: str
    seconds: float
    code: int
    last: list[str]  # lines of its output


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Suites to run.", show_default="all of the device")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: the GPU where there is one.")] = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller and fewer runs, to check that everything works.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of the results.", show_default="benchmarks/results; with --quick a temporary one"),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing; show the results in the folder, from any machine.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Run nothing; list the suites.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")] = False,
    doc: Annotated[Path | None, typer.Option("--doc", help="Write the report to this Markdown file: .md.")] = None,
) -> None:
    """Run the benchmark suites, each in its own process, and report what they measured."""
    check_page(doc)
    if list_:
        return print_json(SUITES) if json_ else print_tables(suites_table(SUITES, SCRIPTS))
    folder = results or (Path(gettempdir()) / "regard-bench" if quick else SCRIPTS / "results")
    outcomes: list[Outcome] = []
    left_out: list[str] = []
    if not show:
        suites = choose_suites(names or [], torch.device(find_device(device)).type)
        outcomes, left_out = run_suites(suites, SCRIPTS, folder, quick, sys.stderr if json_ else sys.stdout)
    chapters = _read_chapters(folder, names if show else None)
    if doc is not None:
        where = doc.name if doc.is_absolute() else doc.as_posix()
        command = f"python -m benchmarks --show --doc {where}{' (of a run with --quick)' * quick}"
        write_page(chapters, doc, command)
        message(f"[dim]page written to[/] {escape(str(doc))}")
    if json_:
        records = {chapter.result.file: chapter.result.record for chapter in chapters}
        print_json({"folder": str(folder), "suites": outcomes, "left_out": left_out, "results": records})
    elif show:
        print_tables(*(table for chapter in chapters for table in _titled_tables(chapter)))
    else:
        _print_summary(outcomes, folder)
    if any(outcome.code for outcome in outcomes) or (names and left_out):
        raise typer.Exit(1)


def run_suites(
    suites: Sequence[Suite], scripts: Path, folder: Path, quick: bool, output: TextIO
) -> tuple[list[Outcome], list[str]]:
    """Run one suite after another; also return which could not run here, and why. A failure does not stop the rest."""
    folder.mkdir(parents=True, exist_ok=True)
    outcomes, left_out = [], []
    for suite in suites:
        reason = unmet_requirement(suite, scripts)
        if reason is not None:
            left_out.append(f"{suite.name}: {reason}")
            message(f"[yellow]{suite.name} left out:[/] {escape(reason)}")
            continue
        message(f"[bold]{suite.name}[/] [dim]on {suite.device}[/]")
        outcome = run_suite(suite, scripts, folder, quick, output)
        outcomes.append(outcome)
        if outcome.code:
            message(f"[bold red]{suite.name} failed[/] with exit code {outcome.code}; its last lines:")
            for line in outcome.last:
                message(f"  {escape(line)}")
    return outcomes, left_out


def run_suite(suite: Suite, scripts: Path, folder: Path, quick: bool, output: TextIO) -> Outcome:
    """Run one suite as a process and pass its output on, except for the JSON line, which is saved in the folder."""
    command = [sys.executable, "-u", str(scripts / suite.script), *suite.command_line(quick, folder.absolute())]
    last: deque[str] = deque(maxlen=N_LAST_LINES)
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    ) as process:
        assert process.stdout is not None, "stdout was requested as a pipe"
        try:
            for line in (line.rstrip("\n") for line in process.stdout if not line.startswith('{"')):
                last.append(line)
                print(line, file=output, flush=True)
        except BaseException:  # such as Ctrl-C: nobody would read what the suite goes on to measure
            process.kill()
            raise
    return Outcome(suite.name, time.perf_counter() - start, process.returncode, list(last))


def suites_table(suites: Sequence[Suite], scripts: Path) -> Table:
    """List the suites with their questions and with what they lack on this machine."""
    table = Table(title="Benchmark suites", **QUIET)
    for header in ("suite", "device", "question", "missing here"):
        table.add_column(header)
    for suite in suites:
        question = docstring_paragraphs(scripts / suite.script)[:1]
        table.add_row(suite.name, suite.device, "".join(question), unmet_requirement(suite, scripts) or "")
    return table


def _read_chapters(folder: Path, names: list[str] | None) -> list[Chapter]:
    found, broken = read_results(folder)
    for reason in broken:
        message(f"[yellow]left out:[/] {escape(reason)}")
    wanted = [result for result in found if not names or result.name in names]
    if not wanted:
        message(f"[yellow]there are no results in[/] {escape(str(folder))}")
    return make_chapters(wanted, SCRIPTS)


def _titled_tables(chapter: Chapter) -> list[Table]:
    for table in chapter.section.tables:
        table.title = f"{chapter.title}: {table.title}"
    return list(chapter.section.tables)


def _print_summary(outcomes: list[Outcome], folder: Path) -> None:
    for outcome in outcomes:
        end = f"[red]failed, exit code {outcome.code}[/]" if outcome.code else "done"
        message(f"{outcome.suite}: {end} after {outcome.seconds:,.0f} s")
    message(f"[dim]results in[/] {escape(str(folder))}")


def main() -> None:
    """Run the command; a user's mistake ends in one line and exit code 2."""
    try:
        app()
    except ValueError as error:
        message(f"[bold red]error:[/] {escape(str(error))}")
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the output is gone and needs no message about it
        sys.exit(141)


if __name__ == "__main__":
    main()

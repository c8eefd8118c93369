"""The command that exchanges one part at a time: study ablate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json, Out, study
from regard.cli.study_page import Doc, Quick, check_places, keep
from regard.plot.terminal import escaped, print_json, print_tables, say, with_bar
from regard.study.page import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.study.ablation_runs import Plan


@study.command()
def ablate(
    file: Annotated[Path | None, typer.Argument(help="Base, variants and seeds as TOML; --quick has its own.")] = None,
    corpora: Annotated[Path | None, typer.Option(help="Folder in which the texts named by the file lie.")] = None,
    folder: Annotated[Path | None, typer.Option(help="The study's folder.", show_default="runs/ablation")] = None,
    only: Annotated[list[str] | None, typer.Option(help="A variant to run, besides the baseline.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs side by side.", show_default="cores, or 8 on a GPU")] = None,
    quick: Quick = False,
    seed: Annotated[int, typer.Option(help="Added to the seeds that the file names.")] = 0,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing: show what the folder has, from any machine.")
    ] = False,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
    doc: Doc = None,
) -> None:
    """Same data, same budget, one part exchanged: quality, speed and size of each variant, with seeds and spread."""
    from regard.study.ablation import kept_rows, read_rows, sum_up
    from regard.study.parallel import at_once
    from regard.train.run import choose_device

    check_places(out, doc)
    kind = device if show else choose_device(device).type
    plan, place, about = _plan(file, corpora, folder, quick, seed, device)
    if show:
        rows = kept_rows(plan, place)
        beside = max(row.beside for row in rows)
    else:
        beside = jobs or at_once(kind)
        _run(plan, place, beside, only or [])
        rows = read_rows(place)
    result = sum_up(plan, rows)

    def draw() -> "Figure":
        from regard.study.ablation import draw_ablation

        return draw_ablation(result)

    def page() -> Page:
        from regard.study.ablate_page import ablation_page

        return ablation_page(result, plan, _command(file, kind, beside), about)

    keep(draw, page, out, doc)
    if json_:
        return print_json(result)
    from regard.study.ablation import ablate_table, failures

    print_tables(ablate_table(result))
    for failure in failures(result):
        say(f"[red]failed:[/] {escaped(failure)}")


def _run(plan: "Plan", place: Path, beside: int, only: list[str]) -> None:
    """Runs what is missing, and tells of each run as it ends."""
    from regard.study.ablation import make_jobs, run_ablation

    total = len(make_jobs(plan, place, beside, only))
    say(f"[dim]{total} runs, {beside} at a time, results in[/] {escaped(str(place))}")
    try:
        for row in with_bar(run_ablation(plan, place, beside, only), total, "running"):
            told = row.error or f"BLEU {row.bleu_valid:.2f} on validation, {row.seconds:.0f} s"
            say(f"{escaped(row.variant)}, seed {row.seed}: {escaped(told)}")
    except KeyboardInterrupt:
        say("[yellow]stopped[/]: the same command goes on")
        raise typer.Exit(130) from None


def _plan(
    file: Path | None, corpora: Path | None, folder: Path | None, quick: bool, seed: int, device: str
) -> "tuple[Plan, Path, str]":
    """Reads what is to be compared; gives it, the study's folder, and what the text is."""
    from regard.study.ablation import with_device
    from regard.study.ablation_runs import ABOUT, PLAN, read_plan, write_reversals

    if quick == (file is not None):
        raise ValueError("name a file of variants, such as recipes/study/ablation.toml, or say --quick, not both")
    if file is not None:
        place = folder or Path("runs/ablation")
        about = f"The text is that of `{file.as_posix()}`, which also has all settings and variants."
    else:
        place, about, file = folder or Path("runs/ablation-quick"), ABOUT, PLAN
        corpora = place / "text"
        write_reversals(corpora)
    return with_device(read_plan(file, corpora), device, seed), place, about


def _command(file: Path | None, device: str, jobs: int) -> str:
    what = "--quick" if file is None else f"{file.as_posix()} --corpora CORPORA"
    return f"regard study ablate {what} --device {device} --jobs {jobs}"

"""The route that shows studies, read anew each time: one that still runs grows."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from regard.serve.answers import answer
from regard.serve.errors import BrokenError
from regard.serve.failures import FAILURES
from regard.serve.house import House
from regard.serve.studies import Judged, Studies, Study, StudyRun

if TYPE_CHECKING:
    from regard.study.one_run import Row

LOG = logging.getLogger("regard.serve")


def studying(house: House) -> APIRouter:
    """Makes the route."""
    router = APIRouter(tags=["look"], responses=FAILURES)

    @router.get("/studies", response_model=Studies)
    def studies() -> Response:
        """Lists the studies that the server was told of, with all runs that they have so far."""
        return answer(Studies([study_of(folder) for folder in house.settings.studies]))

    return router


def study_of(folder: Path) -> Study:
    """Reads a study from its folder; nothing that it says tells where that is."""
    from regard.study.ablate import read_rows  # with the trainer, which a server without studies need not load

    try:
        rows = read_rows(folder)
    except (ValueError, OSError) as error:
        LOG.exception("the study in %s could not be read", folder)
        raise BrokenError(f"the study {folder.name!r} could not be read; the server's log says why") from error
    on_test = any(row.bleu_test is not None for row in rows)
    runs = [_run(row, on_test) for row in rows]
    return Study(folder.name, "test" if on_test else "validation", runs, _clear(runs))


def check_studies(folders: list[Path]) -> tuple[Path, ...]:
    """Refuses folders that hold no study."""
    from regard.study.ablate import RESULTS

    for folder in folders:
        if not (folder / RESULTS).is_file():
            raise ValueError(
                f"{folder} holds no {RESULTS}: name the folder of a study, which regard study ablate makes"
            )
    return tuple(folders)


def _clear(runs: list[StudyRun]) -> list[str]:
    """Names the variants that differ from the first, which is the baseline, by more than chance."""
    from regard.study.chance import beyond
    from regard.study.spread import spread

    found: dict[str, list[float]] = {}
    for run in runs:
        if run.bleu is not None:
            found.setdefault(run.variant, []).append(run.bleu)
    means = {variant: spread(values) for variant, values in found.items()}
    base = next(iter(means.values()), None)
    return [variant for variant, mean in means.items() if base is not None and beyond(mean, base)]


def _run(row: "Row", on_test: bool) -> StudyRun:
    return StudyRun(
        variant=row.variant,
        part=row.part,
        changes=row.changes,
        seed=row.seed,
        error=row.error,
        parameters=row.parameters,
        tokens_per_second=row.tokens_per_second,
        seconds=row.seconds,
        perplexity=row.perplexity,
        bleu=row.bleu_test if on_test else row.bleu_valid,
        curve=[Judged(int(each["step"]), each["loss"], each["bleu"]) for each in row.curve],
    )

"""Studies for the page: the runs of an ablation, read from its folder."""

import logging
from pathlib import Path

from regard.serve import InternalError
from regard.serve.schema_api import Study, StudyRun, ValidationJson
from regard.study.ablate import RESULTS, read_rows
from regard.study.ablate_runs import AblationRow
from regard.study.repeats import differs, mean_std

LOG = logging.getLogger("regard.serve")


def read_study(folder: Path) -> Study:
    """Read a study from its folder, whose path is not part of the result."""
    try:
        rows = read_rows(folder)
    except (ValueError, OSError) as error:
        LOG.exception("could not read the study in %s", folder)
        raise InternalError(f"could not read the study {folder.name!r}; see the server's log") from error
    on_test = any(row.bleu_test is not None for row in rows)
    runs = [_run(row, on_test) for row in rows]
    return Study(folder.name, "test" if on_test else "validation", runs, _significant(runs))


def check_studies(folders: list[Path]) -> tuple[Path, ...]:
    """Refuse folders that hold no study."""
    for folder in folders:
        if not (folder / RESULTS).is_file():
            raise ValueError(f"{folder} holds no {RESULTS}: expected a folder made by regard study ablate")
    return tuple(folders)


def _significant(runs: list[StudyRun]) -> list[str]:
    """Return the variants that differ significantly from the first, which is the baseline."""
    bleu: dict[str, list[float]] = {}
    for run in runs:
        if run.bleu is not None:
            bleu.setdefault(run.variant, []).append(run.bleu)
    means = {variant: mean_std(values) for variant, values in bleu.items()}
    base = next(iter(means.values()), None)
    return [variant for variant, mean in means.items() if base is not None and differs(mean, base)]


def _run(row: AblationRow, on_test: bool) -> StudyRun:
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
        curve=[ValidationJson(int(each["step"]), each["loss"], each["bleu"]) for each in row.curve],
    )

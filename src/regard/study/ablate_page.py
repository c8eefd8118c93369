"""What each part is worth, as a page of the documentation."""

from dataclasses import fields

from regard.study.ablation import Ablation, Line, ablate_table, failures
from regard.study.ablation_runs import BASELINE, Plan, Row
from regard.study.page import Page

# What the fields of a row mean; a test compares the names with the dataclass.
FIELDS = {
    "variant": "name of the variant, `baseline` first",
    "part": "which part it exchanges",
    "changes": "the settings that differ from the baseline's, each as `setting: old → new`",
    "seed": "of training",
    "digest": "of the whole settings: results of other settings are refused",
    "error": "why the run failed, or null; the fields below are then null",
    "parameters": "numbers that are learned",
    "tokens_per_second": "real target tokens, median over training, validation left out",
    "seconds": "of training and validation",
    "loss": "mean −log p of a target token of the validation text, of the best model",
    "perplexity": "exp of the loss",
    "bleu_valid": "BLEU of greedy translations of the validation text, of the best model",
    "bleu_test": "BLEU of the test text by the search that the settings name, or null",
    "chrf_test": "chrF of the same translations, or null",
    "reason": "why training ended",
    "curve": "step, loss, bleu and chrf of each validation",
    "beside": "runs that shared the machine",
    "signature": "versions, machine, date, seed, digest",
}


def ablation_page(found: Ablation, plan: Plan, command: str, about: str) -> Page:
    """Says what the study asked, did and found."""
    base, signed = plan.variants[0].settings, [row.signature for row in found.rows if row.error is None]
    assert {each.name for each in fields(Row)} == set(FIELDS), "the page must tell of each field of a row"
    beside = max((row.beside for row in found.rows), default=1)
    return Page(
        title=plan.title,
        question=f"The same {'data, the same ' * found.same_data}budget, one part exchanged: what do quality, speed "
        "and size become (S8.3, S4.3, S4.5)?",
        method=[
            about,
            f"Every run takes {base.train.max_steps:,} steps of {base.train.batch_tokens:,} target slots, with the "
            f"very same batches for the same text, pieces and seed; {beside} runs side by side, each in a process of "
            f"its own. Text and pieces are prepared once, for all{_but(plan)}.",
            "BLEU is of the model that was best on the validation text. Speeds are of runs that shared the machine "
            "with others that came and went, and compare with nothing. * marks differences beyond chance by Welch's "
            "t-test at 5 %, each judged by itself. The loss is of one piece, and compares where pieces are the same.",
        ],
        tables=[ablate_table(found)],
        picture="Variants sorted by BLEU with their seeds, and curves of validation loss",
        findings=findings(found),
        command=command,
        signature={**(signed[0] if signed else {}), "seed": ", ".join(map(str, plan.seeds))},
        more=fields_text(),
    )


def _but(plan: Plan) -> str:
    """Names the variants that learn from a text of their own, or from other pieces of it."""
    texts = {variant.name: (variant.settings.data, variant.settings.text) for variant in plan.variants}
    others = [name for name, text in texts.items() if text != texts[BASELINE]]
    return f" but {', '.join(others)}" if others else ""


def findings(found: Ablation) -> list[str]:
    """Puts the numbers into sentences."""
    judged = [line for line in found.lines if line.gain is not None]
    within = [line.variant for line in judged if line.beyond is False and not line.loss_beyond]
    said = [
        f"BLEU better than the baseline's by more than chance: {_named(judged, 1)}.",
        f"Worse by more than chance: {_named(judged, -1)}.",
        f"Validation loss better by more than chance: {_named(judged, -1, of_loss=True)}.",
        f"Worse by more than chance: {_named(judged, 1, of_loss=True)}.",
        f"Not to be told from the baseline by either with so few seeds: {', '.join(within) or 'none'}.",
    ]
    return [*said, *(f"Failed: {failure}" for failure in failures(found))]


def fields_text() -> str:
    """Documents the file of results."""
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items())
    return (
        "## The file of results\n\n`results.json` in the study's folder is written anew after each run: "
        '`{"seeds": […], "rows": […]}`, a row for each variant and seed. A run with a row is not run again; one that '
        f"was stopped goes on where it stood; one that failed is tried again.\n\n| field | meaning |\n|---|---|\n{rows}"
    )


def _named(lines: list[Line], sign: int, of_loss: bool = False) -> str:
    """Names the variants that differ beyond chance to one side, those that differ most first."""
    differing = [
        (line.variant, (line.loss_gain if of_loss else line.gain) or 0.0)
        for line in lines
        if (line.loss_beyond if of_loss else line.beyond)
    ]
    ranked = sorted((each for each in differing if each[1] * sign > 0), key=lambda each: -abs(each[1]))
    digits = 3 if of_loss else 2
    return ", ".join(f"{name} ({gain:+.{digits}f})".replace("(-", "(−") for name, gain in ranked) or "none"

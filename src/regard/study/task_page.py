"""What the pages about tasks say alike."""

from regard.study.page import Page
from regard.study.task_report import TaskStudy, percent, task_table


def task_page(
    study: TaskStudy, command: str, title: str, question: str, method: list[str], picture: str, findings: list[str]
) -> Page:
    """Puts a page together."""
    return Page(
        title=title,
        question=question,
        method=[*method, *shared_method(study)],
        tables=[task_table(study)],
        picture=picture,
        findings=[*findings, *shared_findings(study)],
        command=command,
        signature=study.signature,
    )


def shared_method(study: TaskStudy) -> list[str]:
    """Says what was done in every task."""
    model, learn = study.settings.model, study.settings.learn
    pool = {"class": "read off a class token", "mean": "read off the mean over the tokens"}[study.settings.pool]
    sizes = f"{model.n_encoder_layers} layers, width {model.d_model}, {model.n_heads} heads, inner width {model.d_ff}"
    return [
        f"The model: the Transformer's own encoder layers ({sizes}, dropout {model.dropout:g}), the class {pool}. Only "
        f"the position scheme differs from row to row; waves have the base {study.settings.base:g}.",
        f"Learning: {learn.epochs} epochs, batches of {learn.batch}, AdamW, highest rate {learn.lr:g}, weight decay "
        f"{learn.weight_decay:g}. The epoch that is best on {study.n_valid:,} validation examples is kept; the "
        f"{study.n_test:,} test examples choose no epoch, but they were seen when sizes and rates were tried out.",
        "*At most*: test examples with the same set of (token, coordinates) get the same answer from a model that sees "
        "a set, so it is right for one class of them only. Counted on this very test (`study/bound.py`).",
        "*Shuffled*: the same models read each test example with its tokens in another order, while the places stay.",
    ]


def shared_findings(study: TaskStudy) -> list[str]:
    """Says what the control shows."""
    none = study.row("none")
    if none is None:
        return []
    same = all(trial.test == trial.shuffled for trial in none.trials)
    return [
        f"Control: without positions the models get {percent(none.test.mean)} of the test right and, shuffled, "
        + ("exactly the same" if same else percent(none.shuffled.mean))
        + ": to them it is a set."
    ]

"""What each part is worth, as a table in the terminal."""

from rich.table import Table

from regard.plot.extrapolate_table import said
from regard.plot.table import QUIET
from regard.study.ablate import Ablation, Line

MARKS = {True: "*", False: "", None: ""}


def ablate_table(found: Ablation) -> Table:
    """Lists the variants: quality with its spread, the difference to the baseline, loss, speed and size."""
    seeds = sorted({seed for line in found.lines for seed in line.seeds})
    same = "Same data, same budget" if found.same_data else "Same budget"
    title = f"{same}, one part exchanged; seeds {', '.join(map(str, seeds)) or 'none'}"
    caption = (
        f"BLEU on the {found.measured_on}, and loss a token on the validation text: means ± standard deviations over "
        "seeds, and differences to the baseline. * is beyond chance: Welch's t-test, 5 %, each by itself."
    )
    table = Table(title=title, caption=caption + _unfinished(found), **QUIET)
    heads = ("part", "variant", "BLEU", "differ-\nence", "loss", "differ-\nence", "tokens/s", "param-\neters", "seeds")
    for at, head in enumerate(heads):
        table.add_column(head, justify="left" if at < 2 else "right")
    for line in found.lines:
        table.add_row(*_cells(line))
    return table


def failures(found: Ablation) -> list[str]:
    """Lists what failed, and why; seeds that failed alike are told of together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in sorted(found.rows, key=lambda row: row.seed):
        if row.error is not None:
            alike.setdefault((row.variant, row.error), []).append(str(row.seed))
    return [
        f"{name}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}: {error}"
        for (name, error), seeds in alike.items()
    ]


def _cells(line: Line) -> tuple[str, ...]:
    if line.quality is None or line.loss is None:
        return line.part, line.variant, "failed", *("–" for _ in range(5)), "0"
    speed = "–" if line.speed is None else f"{line.speed.mean:,.0f}"
    gains = _gain(line.gain, line.beyond, 2), _gain(line.loss_gain, line.loss_beyond, 3)
    sizes = "–" if line.parameters is None else f"{line.parameters:,}"
    quality = (said(line.quality, 2), gains[0], said(line.loss, 3), gains[1])
    return line.part, line.variant, *quality, speed, sizes, str(len(line.seeds))


def _gain(gain: float | None, beyond: bool | None, digits: int) -> str:
    return "–" if gain is None else f"{gain:+.{digits}f}{MARKS[beyond]}".replace("-", "−")


def _unfinished(found: Ablation) -> str:
    return f" {found.missing} runs are missing: the same command goes on." if found.missing else ""

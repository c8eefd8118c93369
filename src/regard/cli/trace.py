"""The command that looks inside a run: trace."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, From, Json, Precision, SetDecode, To, app
from regard.cli.translate import BEAM, MODEL, check_languages, decoding, picked
from regard.plot.terminal import escaped, print_json, print_tables, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.trace import Trace
    from regard.trace.summary import HeadChoice

FEW = 60  # pieces of a text that are traced unless --set max_extra says otherwise
FILE = ".safetensors"
VIEW = ".html"
OUT = "Save the trace (.safetensors), a page that shows it (.html) or a figure of it (.png, .svg or .pdf)."
FIGURE = "What the figure shows: words, heads, tree, entropy or norms."
HEAD = "One head, as kind:layer:head, such as cross:1:0; kinds are encoder, decoder and cross."
TERMS = "What the head's scores are made of, instead of its weights."


@app.command()
def trace(
    text: Annotated[str, typer.Argument(help="A sentence.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help=MODEL, show_default="by the text")] = None,
    src: From = None,
    tgt: To = None,
    beam: Annotated[int | None, typer.Option(help=BEAM)] = None,
    set_: SetDecode = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help=OUT)] = None,
    figure: Annotated[str, typer.Option(help=FIGURE)] = "words",
    head: Annotated[str | None, typer.Option(help=HEAD)] = None,
    terms: Annotated[bool, typer.Option("--terms", help=TERMS)] = False,
    precision: Precision = "float32",
    device: Device = "cpu",
    json_: Json = False,
) -> None:
    """Translate a sentence, or goes on with a text, and show what each word looked at, on the run itself."""
    _check_asked(out, figure, head, terms)
    place = None if head is None else _place(head)
    folder, _ = (model, []) if model is not None else picked(src, tgt, iter([text]))
    from regard.pipeline import load
    from regard.pipeline.generator import Generator
    from regard.trace import trace as run_trace

    translator = load(folder, precision, device)
    check_languages(translator, src, tgt)
    if isinstance(translator, Generator):
        seen = run_trace(translator, text.replace("\\n", "\n"), _writing(translator.settings, beam, set_))
    else:
        seen = _translated(translator, text, decoding(translator.settings, beam, None, set_))
    choice = _aligning(seen, folder)
    if out is not None:
        _keep(seen, out, Path(folder).name, figure, place, terms, choice)
    if place is not None:
        return _show_head(seen, place, terms, json_)
    _show_all(seen, json_, choice)


def _translated(translator: Any, text: str, settings: Any) -> "Trace":
    if len(parts := translator.segment([text])[0]) != 1:
        got = f"{len(parts)} parts" if parts else repr(text)
        raise ValueError(f"a text to trace must have words, and no more than the model reads at once, got {got}")
    from regard.trace import trace

    return trace(translator, text, settings)


def _writing(default: Any, beam: int | None, set_: list[str] | None) -> Any:
    """Return the settings of a text that is looked into: a few words of it, unless more are asked for."""
    from dataclasses import replace

    few = replace(default, max_extra=min(default.max_extra, FEW))
    return decoding(few, beam, None, [*(["method=beam"] if beam is not None and beam > 1 else []), *(set_ or [])])


def _aligning(seen: "Trace", folder: str | Path) -> "HeadChoice":
    """Return the heads that align best, where they are kept beside the model, or all."""
    from regard.align.heads import load_shown_heads
    from regard.trace.summary import ALL_HEADS
    from regard.zoo import find_model

    if not seen.cross:
        return ALL_HEADS
    return load_shown_heads(find_model(folder), (len(seen.cross), seen.cross[0].n_heads)) or ALL_HEADS


def _check_asked(out: Path | None, figure: str, head: str | None, terms: bool) -> None:
    """Reject what could not be done before anything is computed."""
    if terms and head is None:
        raise ValueError("--terms are those of one head, got none: add --head, such as --head encoder:0:0")
    if out is None:
        return
    if out.suffix.lower() in {FILE, VIEW}:
        if not out.parent.is_dir():
            raise ValueError(f"the folder for {out.name!r} does not exist: {out.parent}")
        return
    from regard.cli.studies import check_out

    try:
        check_out(out)
    except ValueError as error:
        raise ValueError(f"{error}; a trace itself ends in {FILE}, a page that shows it in {VIEW}") from error
    from regard.config import choose
    from regard.plot.traces import FIGURES

    choose(FIGURES, figure, "figure")


def _place(head: str) -> tuple[str, int, int]:
    """Read kind:layer:head."""
    parts = head.split(":")
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise ValueError(f"a head must be named kind:layer:head, such as cross:1:0, got {head!r}")
    return parts[0], int(parts[1]), int(parts[2])


def _keep(
    seen: "Trace",
    out: Path,
    model: str,
    figure: str,
    place: tuple[str, int, int] | None,
    terms: bool,
    choice: "HeadChoice",
) -> None:
    """Save the trace itself or a page that shows it, or draw what is asked for."""
    if out.suffix.lower() == FILE:
        seen.save(out)
        return say(f"[dim]trace saved as[/] {escaped(str(out))}")
    if out.suffix.lower() == VIEW:
        from regard.serve.serialize import save_html
        from regard.trace.summary import ALL_HEADS

        save_html(seen, out, model, aligning=None if choice == ALL_HEADS else choice)
        return say(f"[dim]page saved as[/] {escaped(str(out))}")
    from regard.cli.studies import keep_figure

    keep_figure(_drawn(seen, figure, place, terms, choice), out)


def _drawn(
    seen: "Trace", figure: str, place: tuple[str, int, int] | None, terms: bool, choice: "HeadChoice"
) -> "Figure":
    from regard.plot.traces import FIGURES, head_figure, terms_figure, words_figure

    if place is None:
        return words_figure(seen, choice) if figure == "words" else FIGURES[figure](seen)
    kind, layer, head = place
    draw = terms_figure if terms else head_figure
    return draw(seen, seen.attention_map(kind, layer), head)


def _show_head(seen: "Trace", place: tuple[str, int, int], terms: bool, json_: bool) -> None:
    """Print one head as numbers."""
    from regard.plot.terminal import numbers_table, terms_tables
    from regard.trace.trace import sides

    kind, layer, head = place
    attention_map = seen.attention_map(kind, layer)
    rows, columns = sides(seen, kind)
    said: dict[str, Any] = {"kind": kind, "layer": layer, "head": head, "queries": rows, "keys": columns}
    if terms:
        split = attention_map.terms(head)
        return print_json({**said, "terms": split}) if json_ else print_tables(*terms_tables(split, rows, columns))
    weights = attention_map.weights(head)
    if json_:
        return print_json({**said, "weights": weights})
    print_tables(numbers_table(weights, rows, columns, f"{kind} layer {layer}, head {head}"))


def _show_all(seen: "Trace", json_: bool, choice: "HeadChoice") -> None:
    """Print a trace for people."""
    from regard.trace.summary import summarise, word_attention

    summary = summarise(seen, choice)
    if json_:
        return print_json(summary)
    from regard.plot.terminal import spread_table, steps_table, word_attention_table

    looked = word_attention(seen, choice)
    source, output = [word.text for word in looked.source], [word.text for word in looked.output]
    title = f"{seen.text} → {seen.output}"
    tables = [word_attention_table(looked.shares.numpy(), source, output, title=title)]
    print_tables(*tables, steps_table(seen.steps), spread_table(summary.spread))
    checks = summary.checks
    kind = "cross" if seen.cross else "decoder"
    n_heads = sum(attention_map.n_heads for attention_map in seen.attention if attention_map.kind == kind)
    whose = f"means over all {n_heads} heads of {kind} attention" if n_heads > 1 else f"those of {kind} attention"
    print(
        f"shares are {whose if choice.layer is None else f'those of {choice}, which aligns best'}; "
        f"weights @ v differ from the layers' output by {checks.weights:.1e} at most, "
        f"log-probabilities from the search's own by {checks.log_prob:.1e}"
    )

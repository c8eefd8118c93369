"""The command that looks inside a run: trace."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from regard.cli.options import (
    TRACE_FILE,
    TRACE_PAGE,
    AnyModel,
    Beam,
    Device,
    Json,
    Precision,
    SetDecode,
    Source,
    Target,
)
from regard.cli.translate import check_languages, decode_settings, pick_model
from regard.config import DecodeSettings, choose
from regard.pipeline import load
from regard.pipeline.translator import Translator
from regard.plot.style import check_figure, save_and_report
from regard.plot.tables import numbers_table, spread_table, steps_table, terms_tables, word_attention_table
from regard.serve.serialize import save_html
from regard.terminal import escape, message, print_json, print_tables
from regard.trace import Trace
from regard.trace import trace as record
from regard.trace.head_choice import ALL_HEADS, HeadChoice, load_shown_heads
from regard.trace.summary import summarise, word_attention
from regard.trace.trace import sides
from regard.zoo import find_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_GENERATED = 60  # tokens of a generated text that are traced, unless --set max_extra says otherwise
OUT = "Save the trace (.safetensors), a web page that shows it (.html) or a figure (.png, .svg or .pdf)."
FIGURE = "What the figure shows: words, heads, tree, entropy or norms."
HEAD = "Show one head, named kind:layer:head, such as cross:1:0; kinds are encoder, decoder and cross."
TERMS = "Show the terms of the head's scores instead of its weights."

HeadName = tuple[str, int, int]  # kind, layer, head


def trace(
    text: Annotated[str, Argument(help="Sentence to translate, or prompt to continue.")],
    model: AnyModel = None,
    src: Source = None,
    tgt: Target = None,
    beam: Beam = None,
    set_: SetDecode = None,
    out: Annotated[Path | None, Option("--out", "-o", help=OUT)] = None,
    figure: Annotated[str, Option(help=FIGURE)] = "words",
    head: Annotated[str | None, Option(help=HEAD)] = None,
    terms: Annotated[bool, Option("--terms", help=TERMS)] = False,
    precision: Precision = "float32",
    device: Device = "auto",
    json_: Json = False,
) -> None:
    check_request(out, figure, head, terms)
    name = None if head is None else parse_head(head)
    folder, _ = (model, []) if model is not None else pick_model(src, tgt, iter([text]))
    pipeline = load(folder, precision, device, None, src, tgt)
    if isinstance(pipeline, Translator):
        check_languages(pipeline, src, tgt)
        run = trace_translation(pipeline, text, decode_settings(pipeline.settings, beam, None, set_))
    else:
        decode = generation_settings(pipeline.settings, beam, set_)
        run = record(pipeline, text.replace("\\n", "\n"), decode)
    choice = aligning_heads(run, folder)
    if out is not None and out.suffix.lower() in {TRACE_FILE, TRACE_PAGE}:
        save_trace(run, out, Path(folder).name, choice)
    elif out is not None:
        save_and_report(make_figure(run, figure, name, terms, choice), out)
    if name is not None:
        return print_head(run, name, terms, json_)
    print_trace(run, json_, choice)


def check_request(out: Path | None, figure: str, head: str | None, terms: bool) -> None:
    """Raise ValueError for what could not be done, before anything is computed."""
    if terms and head is None:
        raise ValueError("--terms are those of one head, got none: add --head, such as --head encoder:0:0")
    if out is None:
        return
    if out.suffix.lower() in {TRACE_FILE, TRACE_PAGE}:
        if not out.parent.is_dir():
            raise ValueError(f"the folder for {out.name!r} does not exist: {out.parent}")
        return
    try:
        check_figure(out)
    except ValueError as error:
        raise ValueError(
            f"{error}; a trace itself ends in {TRACE_FILE}, a page that shows it in {TRACE_PAGE}"
        ) from error
    choose(trace_figures().FIGURES, figure, "figure")


def trace_figures() -> ModuleType:
    """Return the module that draws traces; matplotlib, which it imports, is optional."""
    from regard.plot import traces

    return traces


def parse_head(head: str) -> HeadName:
    """Parse kind:layer:head."""
    parts = head.split(":")
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        raise ValueError(f"a head must be named kind:layer:head, such as cross:1:0, got {head!r}")
    return parts[0], int(parts[1]), int(parts[2])


def trace_translation(translator: Translator, text: str, decode: DecodeSettings) -> Trace:
    """Translate one segment with a recorder attached; a longer text is refused."""
    if len(parts := translator.segment([text], replace(decode, split="overlong"))[0].parts) != 1:
        got = f"{len(parts)} parts" if parts else repr(text)
        raise ValueError(f"a text to trace must have words, and no more than the model reads at once, got {got}")
    return record(translator, text, decode)


def generation_settings(default: DecodeSettings, beam: int | None, set_: list[str] | None) -> DecodeSettings:
    """Return the settings of a generated text: few tokens, unless more are asked for."""
    few = replace(default, max_extra=min(default.max_extra, MAX_GENERATED))
    by_beam = ["method=beam"] if beam is not None and beam > 1 else []
    return decode_settings(few, beam, None, [*by_beam, *(set_ or [])])


def aligning_heads(run: Trace, folder: str | Path) -> HeadChoice:
    """Return the heads that align best, where they are stored with the model, or all."""
    if not run.cross:
        return ALL_HEADS
    return load_shown_heads(find_model(folder), (len(run.cross), run.cross[0].n_heads)) or ALL_HEADS


def save_trace(run: Trace, out: Path, model: str, choice: HeadChoice) -> None:
    """Save the trace itself, or a page that shows it."""
    if out.suffix.lower() == TRACE_FILE:
        run.save(out)
        return message(f"[dim]trace saved as[/] {escape(str(out))}")
    save_html(run, out, model, aligning=None if choice == ALL_HEADS else choice)
    return message(f"[dim]page saved as[/] {escape(str(out))}")


def make_figure(run: Trace, figure: str, name: HeadName | None, terms: bool, choice: HeadChoice) -> "Figure":
    """Draw the whole trace, or one head."""
    figures = trace_figures()
    if name is None:
        return figures.words_figure(run, choice) if figure == "words" else figures.FIGURES[figure](run)
    kind, layer, head = name
    draw = figures.terms_figure if terms else figures.head_figure
    return draw(run, run.attention_map(kind, layer), head)


def print_head(run: Trace, name: HeadName, terms: bool, json_: bool) -> None:
    """Print the numbers of one head."""
    kind, layer, head = name
    attention = run.attention_map(kind, layer)
    rows, columns = sides(run, kind)
    about: dict[str, Any] = {"kind": kind, "layer": layer, "head": head, "queries": rows, "keys": columns}
    if terms:
        split = attention.terms(head)
        return print_json({**about, "terms": split}) if json_ else print_tables(*terms_tables(split, rows, columns))
    weights = attention.weights(head)
    if json_:
        return print_json({**about, "weights": weights})
    print_tables(numbers_table(weights, rows, columns, f"{kind} layer {layer}, head {head}"))


def print_trace(run: Trace, json_: bool, choice: HeadChoice) -> None:
    """Print what each word attended to, each step's alternatives, and how spread out each head is."""
    summary = summarise(run, choice)
    if json_:
        return print_json(summary)
    words = word_attention(run, choice)
    source, output = [word.text for word in words.source], [word.text for word in words.output]
    title = f"{run.text} → {run.output}"
    tables = [word_attention_table(words.shares, source, output, title=title)]
    print_tables(*tables, steps_table(run.steps), spread_table(summary.spread))
    checks = summary.checks
    kind = "cross" if run.cross else "decoder"
    n_heads = sum(attention.n_heads for attention in run.attention if attention.kind == kind)
    whose = f"means over all {n_heads} heads of {kind} attention" if n_heads > 1 else f"those of {kind} attention"
    print(
        f"shares are {whose if choice.layer is None else f'those of {choice}, which aligns best'}; "
        f"weights @ v differ from the layers' output by {checks.weights:.1e} at most, "
        f"log-probabilities from the search's own by {checks.log_prob:.1e}"
    )

"""The commands of models that write: generate, perplexity."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json, Precision, app
from regard.plot.terminal import escaped, print_json, say

if TYPE_CHECKING:
    from regard.config import DecodeSettings
    from regard.pipeline.generator import Generator

MODEL = "The folder of a run with a decoder, or the model folder inside it."
OUT = "Save a trace of the text (.safetensors), or a page that shows it (.html)."


@dataclass(frozen=True)
class Written:
    """One text, as programs get it."""

    prompt: str
    text: str  # what follows the prompt
    tokens: list[str]
    log_probs: list[float]
    sample: int
    ended: bool  # by the model itself


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The text to go on with; \\n in it is a line end.")] = "",
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL)] = "",
    tokens: Annotated[int | None, typer.Option(help="Pieces written after the prompt.", show_default="own")] = None,
    temperature: Annotated[float | None, typer.Option(help="Below 1 the likely gets likelier.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from so many of the likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest with this share together.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed draws the same text.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest instead of a draw.")] = False,
    samples: Annotated[int, typer.Option(help="Texts, one after the other.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help=OUT)] = None,
    precision: Precision = "float32",
    device: Device = "cpu",
    json_: Json = False,
) -> None:
    """Goes on with a text, shown as it is written."""
    if samples < 1 or (greedy and samples > 1):
        raise ValueError(f"--samples must be 1 or more, and 1 with --greedy, got {samples}: leave it out")
    prompt = prompt.replace("\\n", "\n")
    writer = _writer(model, precision, device)
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "max_extra": tokens}
    chosen = _settings(writer.settings, {name: value for name, value in drawing.items() if value is not None})
    chosen = _settings(chosen, {"method": "greedy" if greedy else "sample", "n_best": samples})
    if out is not None:
        return _keep(writer, prompt, chosen, out, model)
    texts = range(samples)
    if json_:
        return print_json([_written(writer, prompt, chosen, sample) for sample in texts])
    for sample in texts:
        _show(prompt, writer.stream(prompt, chosen, sample), first=sample == 0)


@app.command()
def perplexity(
    files: Annotated[list[str], typer.Argument(help="Texts as the model has learned them; - is stdin.")],
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL)],
    columns: Annotated[list[int] | None, typer.Option(help="Of a document's line, counted from 1.")] = None,
    precision: Precision = "float32",
    device: Device = "cpu",
    json_: Json = False,
) -> None:
    """How well a model foresees texts: −log p of a piece in nats, and its perplexity."""
    from regard.data.formats import read_blocks, read_documents

    writer = _writer(model, precision, device)
    if writer.form == "documents":
        texts = [each.text for each in read_documents(files, columns or ()) if each.text]
    else:
        texts = ["".join(read_blocks(each)) for each in files]
    found = writer.log_likelihood(*texts)
    told = {"loss": found.loss, "perplexity": found.perplexity, "pieces": found.n_tokens}
    if json_:
        return print_json(told)
    print(f"{found.n_tokens:,} pieces: {found.loss:.4f} nats a piece, perplexity {found.perplexity:.3f}")


def _writer(model: str, precision: str, device: str) -> "Generator":
    """Opens a model that writes."""
    if not model:
        raise ValueError("a model that writes must be named with --model: regard train --family decoder makes one")
    from regard.pipeline import load_generator

    return load_generator(model, precision, device)


def _settings(default: "DecodeSettings", changes: dict[str, Any]) -> "DecodeSettings":
    from dataclasses import replace

    return replace(default, **changes)


def _show(prompt: str, pieces: Iterable[str], first: bool) -> None:
    """Prints a text as it comes; the next one below a rule."""
    if not first:
        print("\n---")
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()


def _written(writer: "Generator", prompt: str, settings: "DecodeSettings", sample: int) -> Written:
    from regard.pipeline.generator import as_text

    before = writer.encode(prompt)
    said = list(writer.tokens(before, settings, sample))
    ended = bool(said) and said[-1][0] == writer.tokenizer.eos_id
    ids = [token for token, _ in said[: len(said) - ended]]
    pieces = writer.tokenizer.pieces([token for token, _ in said], "tgt")
    text = "".join(as_text(writer.tokenizer, before, ids))
    return Written(prompt, text, pieces, [gain for _, gain in said], sample, ended)


def _keep(writer: "Generator", prompt: str, settings: "DecodeSettings", out: Path, model: str) -> None:
    """Writes one text, traced."""
    from regard.cli.trace import FILE, VIEW

    if out.suffix.lower() not in {FILE, VIEW} or not out.parent.is_dir():
        raise ValueError(f"{out}: a trace must end in {FILE} or {VIEW}, in a folder that is there; see regard trace")
    from regard.trace import trace

    seen = trace(writer, prompt, settings)
    if out.suffix.lower() == FILE:
        seen.save(out)
    else:
        from regard.serve.serialize import save_html

        save_html(seen, out, Path(model).name)
    print(seen.output)
    say(f"[dim]trace saved as[/] {escaped(str(out))}")

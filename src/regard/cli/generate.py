"""Commands of language models: generate, perplexity."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli.options import TRACE_FILE, TRACE_PAGE, Device, Json, Precision
from regard.config import DecodeSettings
from regard.data.formats import read_blocks, read_documents
from regard.pipeline import load_generator
from regard.pipeline.generator import Generator, as_text
from regard.serve.serialize import save_html
from regard.terminal import escape, message, print_json
from regard.trace import trace

MODEL = "Folder of a run with a decoder, or the model folder inside it."
PROMPT = "Text to continue; \\n in it is a line break."
TEMPERATURE = "Divide the logits by this before sampling; below 1 the distribution is sharper."
TOP_P = "Sample from the smallest set of most likely tokens with at least this total probability (nucleus sampling)."
OUT = "Save a trace of the generated text (.safetensors), or a web page that shows it (.html)."


@dataclass(frozen=True)
class Sample:
    """One generated text, as --json prints it."""

    prompt: str
    text: str  # what follows the prompt
    tokens: list[str]
    log_probs: list[float]
    sample: int
    ended: bool  # by the model's end-of-text token


def generate(
    prompt: Annotated[str, Argument(help=PROMPT)] = "",
    model: Annotated[str, Option("--model", "-m", help=MODEL)] = "",
    tokens: Annotated[int | None, Option(help="Generate at most this many tokens.", show_default="own")] = None,
    temperature: Annotated[float | None, Option(help=TEMPERATURE)] = None,
    top_k: Annotated[int | None, Option(help="Sample from the k most likely tokens (top-k sampling).")] = None,
    top_p: Annotated[float | None, Option(help=TOP_P)] = None,
    seed: Annotated[int | None, Option(help="Random seed; the same seed gives the same text.")] = None,
    greedy: Annotated[bool, Option("--greedy", help="Take the most likely token instead of sampling.")] = False,
    samples: Annotated[int, Option(help="Number of texts.")] = 1,
    out: Annotated[Path | None, Option("--out", "-o", help=OUT)] = None,
    precision: Precision = "float32",
    device: Device = "auto",
    json_: Json = False,
) -> None:
    if samples < 1 or (greedy and samples > 1):
        raise ValueError(f"--samples must be 1 or more, and 1 with --greedy, got {samples}: leave it out")
    prompt = prompt.replace("\\n", "\n")
    generator = open_generator(model, precision, device)
    named = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "max_extra": tokens}
    named = {name: value for name, value in named.items() if value is not None}
    method = "greedy" if greedy else "sample"
    decode = replace(generator.settings, **named, method=method, n_best=samples)
    if out is not None:
        return save_generated_trace(generator, prompt, decode, out, model)
    if json_:
        return print_json([generate_sample(generator, prompt, decode, sample) for sample in range(samples)])
    for sample in range(samples):
        print_text(prompt, generator.stream(prompt, decode, sample), first=sample == 0)


def perplexity(
    files: Annotated[list[str], Argument(help="Texts in the form the model was trained on; - is stdin.")],
    model: Annotated[str, Option("--model", "-m", help=MODEL)],
    columns: Annotated[list[int] | None, Option(help="Columns of a line that hold the document, from 1.")] = None,
    precision: Precision = "float32",
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """The loss is the mean −log p of a token, in nats."""
    generator = open_generator(model, precision, device)
    if generator.form == "documents":
        texts = [each.text for each in read_documents(files, columns or ()) if each.text]
    else:
        texts = ["".join(read_blocks(each)) for each in files]
    likelihood = generator.log_likelihood(*texts)
    loss, value, n_tokens = likelihood.loss, likelihood.perplexity, likelihood.n_tokens
    if json_:
        return print_json({"loss": loss, "perplexity": value, "pieces": n_tokens})
    print(f"{n_tokens:,} tokens: {loss:.4f} nats per token, perplexity {value:.3f}")


def open_generator(model: str, precision: str, device: str) -> Generator:
    """Open a language model; raise ValueError where none is named."""
    if not model:
        raise ValueError("name a language model with --model: regard train --family decoder makes one")
    return load_generator(model, precision, device)


def print_text(prompt: str, pieces: Iterable[str], first: bool) -> None:
    """Print a text as it is generated; every further one below a rule."""
    if not first:
        print("\n---")
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()


def generate_sample(generator: Generator, prompt: str, decode: DecodeSettings, sample: int) -> Sample:
    """Generate one text with its tokens and their log-probabilities."""
    before = generator.encode(prompt)
    steps = list(generator.tokens(before, decode, sample))
    ended = bool(steps) and steps[-1][0] == generator.tokenizer.eos_id
    ids = [token for token, _ in steps[: len(steps) - ended]]
    tokens = generator.tokenizer.pieces([token for token, _ in steps], "tgt")
    text = "".join(as_text(generator.tokenizer, before, ids))
    return Sample(prompt, text, tokens, [log_prob for _, log_prob in steps], sample, ended)


def save_generated_trace(generator: Generator, prompt: str, decode: DecodeSettings, out: Path, model: str) -> None:
    """Generate one text with a recorder attached, save the trace or a page of it, and print the text."""
    if out.suffix.lower() not in {TRACE_FILE, TRACE_PAGE} or not out.parent.is_dir():
        raise ValueError(
            f"{out}: a trace must end in {TRACE_FILE} or {TRACE_PAGE}, in a folder that exists; see regard trace"
        )
    run = trace(generator, prompt, decode)
    if out.suffix.lower() == TRACE_FILE:
        run.save(out)
    else:
        save_html(run, out, Path(model).name)
    print(run.output)
    message(f"[dim]trace saved as[/] {escape(str(out))}")

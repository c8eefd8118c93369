"""The command distill: a teacher translates text, and a student learns from what it wrote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from typer import Option

from regard.checkpoint import CONFIG
from regard.cli.evaluate import read_sides
from regard.cli.options import AutoPrecision, Beam, Device, Reverse, Set
from regard.cli.train import train
from regard.cli.translate import decode_settings
from regard.data.files import check_file, read_good_lines
from regard.data.formats import split_source
from regard.pipeline import load_translator
from regard.pipeline.translator import Translator
from regard.terminal import escape, message, progress_bar
from regard.train.distillation import claim_text, describe_teaching, write_parts
from regard.zoo import find_model

TEACHER = "The model that translates: a bundled one, the folder of a run, or a model folder."
DATA = "Parallel text, of which the teacher translates the source sides. May be repeated."
LINES = "Text of the source language alone, line by line. May be repeated."
REFERENCES = "Weight of the human translations in --data, of which the student learns too; 0 leaves them out."
VALID = "Validation text; by default split off what the teacher wrote."
PRESET = "Size of the student: tiny, small or base."
RESUME = "Go on where this command was interrupted."
OVERWRITE = "Make the translations and the student anew."


def distill(
    teacher: Annotated[str, Option("--teacher", "-m", help=TEACHER)],
    out: Annotated[Path, Option("--out", "-o", help="Folder of the student's run; OUT-text keeps the translations.")],
    data: Annotated[list[str] | None, Option(help=DATA)] = None,
    lines: Annotated[list[str] | None, Option(help=LINES)] = None,
    references: Annotated[float, Option(min=0.0, help=REFERENCES)] = 0.0,
    reverse: Reverse = False,
    valid: Annotated[list[str] | None, Option(help=VALID)] = None,
    preset: Annotated[str | None, Option(help=PRESET, show_default="small")] = None,
    config: Annotated[Path | None, Option(help="TOML file with settings of the student.")] = None,
    set_: Set = None,
    beam: Beam = None,
    precision: AutoPrecision = "auto",
    device: Device = "auto",
    resume: Annotated[bool, Option("--resume", help=RESUME)] = False,
    overwrite: Annotated[bool, Option("--overwrite", help=OVERWRITE)] = False,
) -> None:
    """The student reads each distinct source line once, with the teacher's best translation (Kim and Rush 2016)."""
    check_text(data or [], lines or [], references)
    if resume and (out / CONFIG).exists():
        return train(out, resume=True)
    folder = find_model(teacher)
    translator = load_translator(folder, precision, device)
    decode = decode_settings(translator.settings, beam, 1, None)
    sources = [path for source in data or () for path in split_source(source)] + (lines or [])
    text = out.with_name(f"{out.name}-text")
    claim_text(text, describe_teaching(folder, decode, sources), resume, overwrite)
    made = write_parts(translator, source_lines(translator, data or [], lines or [], reverse), decode, text, reverse)
    parts = [str(path) for path in progress_bar(made, None, "the teacher translates")]
    message(f"what the teacher wrote is in {escape(str(text))}")
    human = (data or []) if references else []
    sets = [f"train.device={device}", *student_data(len(parts), len(human), references, reverse), *(set_ or [])]
    src, tgt = translator.src_lang, translator.tgt_lang
    train(out, [*parts, *human], valid, preset=preset, config=config, set_=sets, src=src, tgt=tgt, overwrite=overwrite)


def student_data(n_made: int, n_human: int, references: float, reverse: bool) -> list[str]:
    """Return the settings of a student's text: how files are weighted, and which side is read first."""
    weights = [f"data.weights={[1.0] * n_made + [references] * n_human}"] if n_human else []
    return [*weights, "data.reverse=true"] if reverse else weights


def check_text(data: list[str], lines: list[str], references: float) -> None:
    """Raise ValueError where there is nothing to translate, or nothing that can be read twice."""
    if not data and not lines:
        raise ValueError("there is no text for the teacher: name it with --data or --lines")
    if "-" in [*data, *lines]:
        raise ValueError("the teacher's text is read more than once, got '-': write it to a file first")
    if references and not data:
        raise ValueError(f"--references weighs the translations in --data, got {references} without: leave it out")
    for path in lines:
        check_file(path)


def source_lines(teacher: Translator, data: list[str], lines: list[str], reverse: bool) -> Iterator[str]:
    """Yield what the teacher is to translate."""
    if data:
        yield from (src for src, _ in read_sides(data, (teacher.src_lang, teacher.tgt_lang), reverse))
    for path in lines:
        yield from read_good_lines(path, lambda problem: message(f"[yellow]{escape(problem)}; left out[/]"))

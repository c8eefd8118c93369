"""What a teacher says of source text, kept in parts: the pairs that its student learns from.

Sequence-level knowledge distillation (Kim and Rush 2016): a small model learns the teacher's translations, which are
plainer and more alike than people's, and can be had for text that nobody has translated.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from regard.atomic import atomic_file, checksum
from regard.checkpoint import model_folder, read_json, write_json
from regard.config import DecodeSettings
from regard.pipeline.translator import Translator

PART = 20_000  # lines; as much as an interrupted command does again
MADE_FROM = "teacher.json"
PARTS = re.compile(r"part-\d{5}\.tsv")


def describe_teaching(teacher: Path, decode: DecodeSettings, sources: Iterable[str]) -> dict[str, Any]:
    """Return what decides the translations: the teacher's weights, how it decodes, and the text by its checksum."""
    weights = sorted(model_folder(teacher).glob("*.safetensors"))
    return {
        "teacher": {path.name: checksum(path) for path in weights},
        "decode": asdict(decode),
        "text": {Path(source).name: checksum(Path(source)) for source in sources},
    }


def claim_text(folder: Path, made_from: dict[str, Any], resume: bool, overwrite: bool) -> None:
    """Let a folder hold the teacher's translations; those that are there go on only if they were made from the same."""
    written = [path for path in folder.glob("*") if path.name == MADE_FROM or PARTS.fullmatch(path.name)]
    if written and not (resume or overwrite):
        raise ValueError(
            f"{folder}: there are translations of a teacher: --resume goes on with them, --overwrite makes them anew"
        )
    if overwrite:
        for path in written:
            path.unlink()
    elif written:
        before = read_json(folder / MADE_FROM)
        changed = [name for name, value in made_from.items() if before.get(name) != value]
        if changed:
            raise ValueError(
                f"{folder}: its translations were made with another {' and '.join(changed)}: "
                "--overwrite makes them anew, or name another --out"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / MADE_FROM) as draft:
        write_json(draft, made_from)


def write_parts(
    teacher: Translator, lines: Iterable[str], decode: DecodeSettings, folder: Path, reverse: bool = False
) -> Iterator[Path]:
    """Translate each distinct line once, and yield the files of pairs; a part that is there is not made again.

    With `reverse` the translation is the first side of a pair, as it is in text that a run reads in reverse.
    """
    rest = iter(dict.fromkeys(filter(None, (" ".join(line.split()) for line in lines))))
    for number, part in enumerate(iter(lambda: list(islice(rest, PART)), []), start=1):
        path = folder / f"part-{number:05}.tsv"
        if not path.exists():
            pairs = zip(part, teacher.stream(part, decode), strict=True)
            sides = ((line, " ".join(each.text.split()))[:: -1 if reverse else 1] for line, each in pairs if each.text)
            with atomic_file(path) as draft, draft.open("w", encoding="utf-8") as file:
                file.writelines(f"{first}\t{second}\n" for first, second in sides)
        yield path

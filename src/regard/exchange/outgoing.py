"""A model on its way out: what another format can say, what a folder gets beside the weights, and its card."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from regard import __version__
from regard.atomic import atomic_folder, written_names
from regard.checkpoint import (
    CARD,
    CONFIG,
    check_sizes,
    describe,
    load_tokenizer,
    model_folder,
    portable,
    read_json,
    read_settings,
    read_stored,
    settings_table,
    write_json,
)
from regard.config import Settings, choose
from regard.data.normalise import language_code
from regard.data.tokenizer import Tokenizer
from regard.engine.native_weights import Codes, TransformerWeights, from_arrays, packs
from regard.search.hypothesis import free_lengths
from regard.shapes import Array, np
from regard.zoo import lacks, make_card, read_card


@dataclass(frozen=True)
class Format:
    """What another program's format can say of our settings."""

    title: str
    norms: tuple[str, ...]
    positions: tuple[str, ...]
    precisions: tuple[str, ...]
    two_vocabularies: bool


ADDED = ("none", "index", "sinusoidal", "learned", "half_wave")  # positions that are a table of vectors to add
FORMATS = {
    "transformers": Format("Hugging Face's Transformers", ("layer",), ADDED, ("float32",), False),
    "ctranslate2": Format("CTranslate2", ("layer",), ADDED, ("float32", "int8"), True),
    "onnx": Format("our ONNX graph", ("layer", "rms"), (*ADDED, "rotary"), ("float32",), True),
}
RECORD = "regard.json"  # what was exported, by which version, into which files


def unsayable(to: Format, made: Settings, joint: bool) -> list[str]:
    """Name the settings of a model that a format has no words for."""
    model = made.model
    if model.family != "transformer":
        return [f"family {model.family!r}"]
    found = [] if model.attention.name == "scaled_dot" else [f"attention {model.attention.name!r}"]
    found += [] if model.position.name in to.positions else [f"position {model.position.name!r}"]
    found += [] if model.norm in to.norms else [f"norm {model.norm!r}"]
    found += [] if joint or to.two_vocabularies else ["text.joint false, two vocabularies"]
    found += ["embedding_norm true"] if model.embedding_norm else []
    return found or ([] if packs(model) else [f"position {model.position.name!r} with {dict(model.position.options)}"])


def refuse(folder: Path, to: str, made: Settings, joint: bool) -> None:
    """Raise ValueError where a format cannot say a model, naming what it is and which format can."""
    found = unsayable(choose(FORMATS, to, "format"), made, joint)
    if not found:
        return
    others = [f"--to {name}" for name, each in FORMATS.items() if not unsayable(each, made, joint)]
    way_out = f"use {' or '.join(others)}" if others else "export it without --to, and regard serve answers by HTTP"
    raise ValueError(f"{folder}: {FORMATS[to].title} cannot say this model exactly, got {', '.join(found)}: {way_out}")


@dataclass(frozen=True, eq=False)
class Outgoing:
    """A model that another format can say: its settings, words and weights in float32, without PyTorch."""

    folder: Path
    settings: Settings
    tokenizer: Tokenizer
    weights: TransformerWeights

    @property
    def longest_target(self) -> int:
        """The most tokens that a target has, EOS counted, of the longest source that the model was made to read."""
        free = free_lengths([[0] * self.settings.text.max_len], self.settings.decode)[0]
        return free if self.weights.limit is None else min(free, self.weights.limit)

    @property
    def n_positions(self) -> int:
        """The number of positions that a table of them gets: all that there are, or a power of two that is enough."""
        if self.weights.limit is not None:
            return self.weights.limit
        needed = max(self.longest_target, self.settings.text.max_len + 1, 512)
        return 1 << (needed - 1).bit_length()

    @property
    def beam(self) -> int:
        return self.settings.decode.beam if self.settings.decode.method == "beam" else 1


def open_outgoing(path: Path, to: str, precision: str) -> Outgoing:
    """Read a model for a format, or raise ValueError naming what the format cannot say."""
    folder = model_folder(path)
    made = read_settings(folder / CONFIG)
    tokenizer = load_tokenizer(folder, made)
    refuse(path, to, made, tokenizer.joint)
    if tokenizer.borrowed:
        way_out = "use the folder that it was imported from, or export it without --to"
        raise ValueError(f"{path}: an export must have a tokenizer of ours, got an imported model's: {way_out}")
    choose(dict.fromkeys(FORMATS[to].precisions), precision, f"precision of {FORMATS[to].title}")
    stored = read_stored(folder)
    check_sizes(made.model, stored.arrays, folder / CONFIG)
    sizes = tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")
    weights = from_arrays(made.model, stored.restored(), stored.shapes(), sizes, stored.path)
    return Outgoing(folder, made, tokenizer, weights)


@contextmanager
def exported_folder(out: Path, overwrite: bool, model: Outgoing, to: str) -> Iterator[Path]:
    """Yield an empty folder, which takes its name once it is whole; of an older export only its own files go."""
    ours = check_target(out, overwrite)
    with atomic_folder(out, ours.__contains__) as part:
        yield part
        files = sorted(each.name for each in part.iterdir())
        settings = settings_table(portable(model.settings))
        write_json(part / RECORD, {"regard": __version__, "format": to, "files": files, "settings": settings})


def check_target(out: Path, overwrite: bool) -> set[str]:
    """Return the files of an older export that may be replaced; raise ValueError where anything else is in the way."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: an exported model needs a folder, got a file of this name: name another with --out")
    names = written_names(out)
    if not names:
        return set()
    if not overwrite:
        raise ValueError(f"{out}: there is something here already: --overwrite replaces an older export")
    if RECORD not in names:
        raise ValueError(f"{out}: --overwrite replaces an older export, got a folder without {RECORD}: name another")
    files = read_json(out / RECORD).get("files")
    if not isinstance(files, list):
        raise ValueError(f"{out / RECORD}: files must be a list of names, got {files!r:.60}")
    return {RECORD, *map(str, files)}


def write_table(path: Path, table: Mapping[str, Any]) -> None:
    """Write a large JSON file without indents."""
    path.write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")


def outgoing_card(model: Outgoing, name: str, library: str, section: str) -> tuple[str, list[str]]:
    """Return the card of an exported model under the header that model hubs read, and what a person has to fill in."""
    card = read_card(model.folder) if (model.folder / CARD).exists() else _new_card(model, name)
    title, _, rest = card.partition("\n")
    languages = [language_code(each) for each in (model.settings.data.src_lang, model.settings.data.tgt_lang)]
    header = [
        "---",
        "language:",
        *(f"- {each}" for each in languages),
        "license: other",
        "license_name: licences-of-the-texts",
        "license_link: README.md",
        "pipeline_tag: translation",
        f"library_name: {library}",
        "tags:",
        "- translation",
        "---",
    ]
    return "\n".join([*header, title, "", section, rest]), lacks(card)


def _new_card(model: Outgoing, name: str) -> str:
    return make_card(name, describe(model.folder), "(to be filled in)")


def position_table(codes: Codes, n: int, width: int) -> Array:
    """Return what positions add to the first n tokens."""
    return np.array(codes(0, n), np.float32).reshape(n, -1)[:, :width]


def usage(model: Outgoing, program: str, code: Sequence[str], *notes: str) -> str:
    """Return the section of a card that shows how a model is run."""
    longest = model.settings.text.max_len
    said = (
        "What follows this section is the card of the model that this one was exported from.",
        f"Give it one sentence at a time, of at most {longest} pieces, as it was trained: nothing here cuts a text.",
        "An empty text has an empty translation: leave it out.",
        "The tokenizer normalises texts as they were in training, so nothing has to be done to them first.",
        *notes,
    )
    block = "\n".join(["```python", *code, "```"])
    return f"## How to run it with {program}\n\n{block}\n\n{fill(' '.join(said), 120)}"

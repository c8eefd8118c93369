"""A model's folder without PyTorch: its files, its settings, and its weights as NumPy arrays."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from regard.atomic import CHECKSUMS, latest, verify_checksums, written_names
from regard.checkpoint.arrays import LARGEST_JSON, StoredArray, read_file
from regard.config import ModelSettings, Settings, parse_settings
from regard.data.files import MIB as MIB
from regard.data.files import check_regular as check_regular
from regard.data.files import read_whole
from regard.data.normalise import simplified_sides
from regard.data.tokenizer import TOKENIZER_FILES, Tokenizer
from regard.native import Int8Rows, Matrix
from regard.shapes import Array, np

CONFIG, SCORES, CARD = "config.json", "scores.json", "card.md"
ALIGNMENT = "alignment.json"  # the heads that align best, where somebody measured it
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SCALE = ".scale"  # after the name of an 8-bit matrix: the scales of its rows
PRECISIONS = {"F32": "float32", "BF16": "bfloat16", "I8": "int8"}
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def is_model_file(name: str) -> bool:
    """Tell whether a name is that of a file of a model's folder."""
    return name in {CONFIG, SCORES, CARD, ALIGNMENT, WEIGHTS, INDEX, CHECKSUMS, *TOKENIZER_FILES} or bool(
        SHARD.fullmatch(name)
    )


def check_out(out: Path, overwrite: bool) -> None:
    """Raise ValueError unless a model can be written to a folder without losing anything that is not of a model."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: a model needs a folder, got a file of this name: name another with --out")
    names = written_names(out)
    if names and not overwrite:
        raise ValueError(f"{out}: there is something here already: --overwrite replaces it")
    if (out / "model" / CONFIG).exists():
        raise ValueError(f"{out}: --overwrite replaces a model, got the folder of a run: name another with --out")
    taken = sorted(filter(is_model_file, names))
    if taken and not ((out / CONFIG).exists() and "settings" in read_json(out / CONFIG)):
        raise ValueError(f"{out / taken[0]}: --overwrite replaces a model, got a file of something else: name another")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a missing, truncated or foreign file is named."""
    try:
        content = read_whole(path, LARGEST_JSON)
    except FileNotFoundError as error:
        raise ValueError(f"{path}: this file is missing from the model folder") from error
    except OSError as error:
        raise ValueError(f"{path}: this file cannot be read ({error.strerror})") from error
    try:
        value = json.loads(content.decode())
    except RecursionError as error:
        raise ValueError(f"{path}: this must be a table of settings or numbers, got JSON nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path}: this is not a complete JSON file ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: this must be a JSON object, got {type(value).__name__}")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object for people and programs."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load_tokenizer(folder: Path, made: Settings) -> Tokenizer:
    """Read a model's tokenizer, which reads Traditional Chinese as Simplified if its settings say so."""
    sides = simplified_sides(made.data.src_lang, made.data.tgt_lang) if made.text.simplify else frozenset()
    return Tokenizer.load(folder, sides, (made.data.src_lang, made.data.tgt_lang))


def read_settings(path: Path) -> Settings:
    """Read the settings that a run or a model was made with."""
    saved = read_json(path).get("settings")
    if not isinstance(saved, dict):
        raise ValueError(f"{path}: this must hold a table of settings, got {type(saved).__name__}")
    try:
        made = _separate_output(parse_settings(Settings, saved))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if made.text.max_len < 1:
        raise ValueError(f"{path}: text.max_len must be 1 or more, got {made.text.max_len}")
    return made


MANY_LAYERS, WIDE = 100, 1 << 16  # which cost little to compare
# The sizes that a model's parts take from their options, each a dimension of an array.
SIZED = {"additive": "hidden", "learned": "max_len", "t5": "n_buckets", "shaw": "max_distance"}


def check_sizes(model: ModelSettings, arrays: Mapping[str, "StoredArray"], path: Path) -> None:
    """Raise ValueError for sizes far beyond those of these arrays, before anything of such a size is made.

    Whether ordinary sizes fit, the shapes of all arrays tell, and they name the arrays that do not.
    """
    if model.n_heads < 1 or model.d_model < 1 or model.d_model % model.n_heads:
        raise ValueError(f"{path}: d_model must be divisible by n_heads, got {model.d_model} and {model.n_heads}")
    layers = {name: getattr(model, name) for name in ("n_encoder_layers", "n_decoder_layers")}
    widths = {name: getattr(model, name) for name in ("d_model", "d_ff", "d_embedding")}
    if model.family == "recurrent":
        del widths["d_ff"]  # which it does not use
    for what, part in (("attention", model.attention), ("position", model.position)):
        name = SIZED.get(part.name)
        widths |= {} if name is None else {f"{what}.{name}": part.options.get(name)}
    widest = max(max(array.shape, default=1) for array in arrays.values())
    for sizes, low, high in ((layers, 0, max(len(arrays), MANY_LAYERS)), (widths, 1, max(widest, WIDE))):
        for name, size in sizes.items():
            if type(size) is int and not low <= size <= high:
                raise ValueError(f"{path}: model.{name} must lie in {low} … {high} with these weights, got {size}")


def _separate_output(made: Settings) -> Settings:
    """Name the tables as they are in models made when a concatenated position untied the output without a word."""
    tie = {"all": "inputs", "target": "none"}.get(made.model.tie, made.model.tie)
    joined = made.model.position.options.get("join") == "concatenate"
    return replace(made, model=replace(made.model, tie=tie)) if joined else made


def settings_table(made: Settings) -> dict[str, Any]:
    """Return settings as tables in the form in which they are read."""

    def flat(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if value.keys() == {"name", "options"}:
            return {"name": value["name"], **value["options"]}
        return {key: "none" if item is None else flat(item) for key, item in value.items()}

    return flat(asdict(made))


def portable(made: Settings) -> Settings:
    """Cut the names of texts to the last folder and the file: the rest tells of one machine."""

    def cut(sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(",".join("/".join(Path(file).parts[-2:]) for file in source.split(",")) for source in sources)

    data = {name: cut(getattr(made.data, name)) for name in ("train", "valid", "test", "exclude")}
    return replace(made, data=replace(made.data, **data), text=replace(made.text, tokenizer=None))


def model_folder(folder: Path) -> Path:
    """Return the model inside a run's folder, or the folder itself."""
    inside = latest(folder / "model")
    found = inside if (inside / CONFIG).exists() else latest(folder)
    if not found.is_dir():
        raise ValueError(f"{folder}: there is no such model folder")
    return found


@dataclass(frozen=True, eq=False)
class StoredArrays:
    """The arrays of a folder as they lie on disk, mapped and not copied."""

    path: Path  # of the one file, or of the index
    arrays: dict[str, StoredArray]
    n_shards: int
    n_bytes: int  # of all files

    @property
    def precision(self) -> str:
        """The precision of the largest array, which is what most of a model is in."""
        largest = max(self.arrays, key=lambda name: self.arrays[name].size)
        dtype = self.arrays[largest].dtype
        return PRECISIONS.get(dtype, dtype)

    def restored(self) -> "RestoredArrays":
        """Return the numbers to compute with: float32 for 8-bit rows and bfloat16, all else as it is stored."""
        return RestoredArrays(self)

    def rows(self) -> "RowArrays":
        """Return what C++ packs: 8-bit rows as they lie on disk, and all else as `restored` returns it."""
        return RowArrays(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what `restored` and `rows` return."""
        scales = {name + SCALE for name in self._rounded()}
        return {name: array.shape for name, array in self.arrays.items() if name not in scales}

    def check(self) -> "StoredArrays":
        """Return these; raise ValueError naming an array of which nothing could be computed."""
        for name in self._rounded():
            matrix, scales = self.arrays[name].shape, self.arrays[name + SCALE].shape
            if len(matrix) != 2 or scales != matrix[:1]:
                rule = f"must hold one number for each row of a matrix, which has the shape {matrix}"
                raise ValueError(f"{self.path}: {name + SCALE} {rule}, got the shape {scales}: copy the folder again")
        for name, array in self.arrays.items():
            worst = array.not_finite()
            if worst is not None:
                rule = "must be finite numbers of float32"
                raise ValueError(f"{self.path}: the weights {name} {rule}, got {worst}: copy the folder again")
        return self

    def _rounded(self) -> set[str]:
        return {name for name in self.arrays if name + SCALE in self.arrays}


@dataclass(frozen=True, eq=False)
class RestoredArrays(Mapping[str, Array]):
    """Arrays by name, each restored when it is asked for, so that not all of them are in memory at once."""

    stored: StoredArrays

    def __getitem__(self, name: str) -> Array:
        array = self.stored.arrays[name].floats()
        scales = self.stored.arrays.get(name + SCALE)
        return array if scales is None else array * scales.floats().astype(np.float32)[:, None]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored.shapes())

    def __len__(self) -> int:
        return len(self.stored.shapes())


@dataclass(frozen=True, eq=False)
class RowArrays(Mapping[str, Matrix]):
    """Arrays by name, of which no copy is made where they are in 8 bits."""

    stored: StoredArrays

    def __getitem__(self, name: str) -> Matrix:
        values, scales = self.stored.arrays[name], self.stored.arrays.get(name + SCALE)
        return values.numbers() if scales is None else Int8Rows(values.numbers(), scales.numbers())

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored.shapes())

    def __len__(self) -> int:
        return len(self.stored.shapes())


def weights_path(folder: Path) -> Path:
    """Return the file that holds a folder's weights, or the index of several."""
    one, index = folder / WEIGHTS, folder / INDEX
    return one if one.exists() or not index.exists() else index


def read_stored(folder: Path) -> StoredArrays:
    """Map the weights of a folder, whatever their form; a missing, truncated or foreign file is named."""
    path = weights_path(folder)
    if path.name == WEIGHTS:
        (arrays, _), paths = read_file(path), [path]
    else:
        arrays, paths = _read_shards(folder)
    if not arrays:
        raise ValueError(f"{paths[0]}: a model must have weights, got a file without any: copy the folder again")
    verify_checksums(folder)
    n_bytes = sum(path.stat().st_size for path in paths)
    return StoredArrays(path, arrays, len(paths), n_bytes).check()


def _read_shards(folder: Path) -> tuple[dict[str, StoredArray], list[Path]]:
    index = read_json(folder / INDEX)
    files, notes = index.get("weight_map"), index.get("metadata")
    named = isinstance(files, dict) and all(
        isinstance(name, str) and Path(name).name == name for name in files.values()
    )
    if not isinstance(files, dict) or not named or not files:
        raise ValueError(
            f"{folder / INDEX}: weight_map must name a file of this folder for each tensor, got {files!r:.60}"
        )
    mark = notes.get("mark") if isinstance(notes, dict) else None
    arrays: dict[str, StoredArray] = {}
    paths = [folder / name for name in sorted(set(files.values()))]
    for path in paths:
        shard, found = read_file(path)
        expected = {name for name, file in files.items() if file == path.name}
        if found.get("mark") != mark or shard.keys() != expected:
            other = sorted(shard.keys() ^ expected)[:3] or "the same names, and another mark"
            raise ValueError(f"{path}: this shard is of another model than {INDEX} ({other}): copy the folder again")
        arrays |= shard
    return arrays, paths


MEASURES = ("loss", "bleu", "chrf", "n")


def read_scores(folder: Path) -> dict[str, Any]:
    """Read the scores of a model, {} where it has none; raise ValueError for what is no score."""
    path = folder / SCORES
    scores = read_json(path) if path.exists() else {}
    tests = scores.get("tests", [])
    if not isinstance(tests, list):
        raise ValueError(f"{path}: tests must be a list of tables of scores, got {tests!r:.60}")
    tables = [(kind, scores.get(kind, {})) for kind in ("test", "valid")]
    for kind, table in tables + [(f"tests.{n}", each) for n, each in enumerate(tests)]:
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {kind} must be a table of scores, got {table!r:.60}")
        for name in MEASURES:
            value = table.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{path}: {kind}.{name} must be a number, got {value!r:.60}")
    return scores


def describe(folder: Path) -> dict[str, Any]:
    """Tell what a model is: its size, its form on disk, its vocabulary, its settings and its scores."""
    folder = model_folder(folder)
    made, stored = read_settings(folder / CONFIG), read_stored(folder)
    tokenizer = load_tokenizer(folder, made)
    check_sizes(made.model, stored.arrays, folder / CONFIG)
    # Scales of 8-bit rows are a form of storage, and the running means of a batch norm are not learned.
    apart = (SCALE, ".mean", ".variance") if made.model.norm == "batch" else (SCALE,)
    sizes = [array.size for name, array in stored.arrays.items() if not name.endswith(apart)]
    return {
        "parameters": sum(sizes),
        "precision": stored.precision,
        "shards": stored.n_shards,
        "bytes": stored.n_bytes,
        "vocabulary": {side: tokenizer.vocab_size(side) for side in ("src", "tgt")},
        "scores": read_scores(folder),
        "settings": settings_table(made),
    }

"""What an ablation compares: variants of one base, each with one part exchanged, read from TOML."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from json import dumps
from pathlib import Path
from typing import Any

from regard.checkpoint import settings_table
from regard.config import Settings, merged, override, settings, unknown
from regard.train.start import placed  # where the texts that a file names lie

BASELINE = "baseline"
TITLE = "What each part is worth"
KEYS = ["title", "seeds", "base", "variant"]
TABLES = tuple(table.name for table in fields(Settings))
# What must be the same for all, or they could not be compared: the budget, and all data but what is learned from.
LEARNED = ("train", "weights", "tags")
BUDGET = ("batch_tokens", "accumulate", "max_epochs", "max_steps", "max_minutes", "patience", "seed")


@dataclass(frozen=True)
class Variant:
    """One line of the comparison: its settings, what it exchanges, and which part that belongs to."""

    name: str
    part: str
    changes: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True)
class Plan:
    """All variants, the baseline first, each to be run with each seed."""

    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]
    title: str = TITLE

    @property
    def same_data(self) -> bool:
        """Tells whether all learn from the same text."""
        return all(variant.settings.data == self.variants[0].settings.data for variant in self.variants)

    def same_pieces(self, variant: Variant) -> bool:
        """Tells whether a variant says the same pieces as the baseline, so that what one of them costs compares."""
        base, made = self.variants[0].settings, variant.settings
        sampled = replace(made.text, sampling=base.text.sampling, variants=base.text.variants)
        return made.data == base.data and sampled == base.text


def read_plan(path: Path, corpora: Path | None) -> Plan:
    """Reads a file with `title`, `seeds`, tables of `[base]`, and `[[variant]]`s; a mistake is said with its name."""
    try:
        return make_plan(tomllib.loads(path.read_text(encoding="utf-8")), path.parent, corpora)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def make_plan(file: Mapping[str, Any], beside: Path, corpora: Path | None) -> Plan:
    """Makes the settings of all variants."""
    for key in file:
        if key not in KEYS:
            raise ValueError(unknown(key, KEYS, "key"))
    base = placed(dict(file.get("base", {})), beside, corpora)
    first = Variant(BASELINE, "", (), settings(Settings, base))
    check_base(first.settings)
    others = [placed(dict(given), beside, corpora) for given in file.get("variant", [])]
    variants = [first, *(make_variant(given, base, first.settings) for given in others)]
    names = [variant.name for variant in variants]
    if len(variants) < 2 or len(set(names)) < len(names):
        twice = [name for name in names if names.count(name) > 1]
        raise ValueError(f"there must be 1 or more variants, each with a name of its own, got {twice or names[1:]}")
    return Plan(_seeds(file.get("seeds", [0])), tuple(variants), str(file.get("title", TITLE)))


def check_base(base: Settings) -> None:
    """Raises ValueError for a budget that would not be the same for all."""
    if not base.data.train:
        raise ValueError("base.data.train must name the text that all learn from, got nothing")
    if base.train.max_steps is None:
        raise ValueError("base.train.max_steps must say the budget, which is the same for all, got none")
    for name in ("max_minutes", "patience", "max_epochs"):
        if getattr(base.train, name) is not None:
            value = getattr(base.train, name)
            raise ValueError(f'base.train.{name} must be "none", as max_steps is the budget of all, got {value}')


def make_variant(given: Mapping[str, Any], base: Mapping[str, Any], first: Settings) -> Variant:
    """Lays one variant's tables over the base."""
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"a variant must have a name, got {name!r}")
    try:
        for key in given:
            if key not in {"name", "part", "set", *TABLES}:
                raise ValueError(unknown(key, ["name", "part", "set", *TABLES], "key"))
        tables = {key: value for key, value in given.items() if key in TABLES}
        made = settings(Settings, merged(base, tables, *(override(text) for text in given.get("set", []))))
        changes = differences(first, made)
        check_changes(changes)
    except ValueError as error:
        raise ValueError(f"variant {name!r}: {error}") from error
    return Variant(name, str(given.get("part", "")), tuple(said for _, said in changes), made)


def check_changes(changes: list[tuple[str, str]]) -> None:
    """Raises ValueError for a variant that exchanges nothing, or what must be the same for all."""
    if not changes:
        raise ValueError("it is the same as the base: leave it out, or exchange a part")
    for setting, said in changes:
        table, _, name = setting.partition(".")
        if (table == "data" and name not in LEARNED) or (table == "train" and name in BUDGET):
            raise ValueError(f"all variants are judged by the same text and budget, got {said}: change it in the base")


def differences(one: Settings, other: Settings) -> list[tuple[str, str]]:
    """Lists the settings in which two differ: each one's name, and what it was and is."""
    found = []
    old, new = settings_table(one), settings_table(other)
    for table, values in old.items():
        for name, value in values.items():
            if new[table][name] != value:
                setting = f"{table}.{name}"
                found.append((setting, f"{setting}: {_worded(value)} → {_worded(new[table][name])}"))
    return found


def digest(made: Settings) -> str:
    """Names settings by a few letters, so that a result can be told to be of others."""
    return blake2b(dumps(settings_table(made), sort_keys=True).encode(), digest_size=6).hexdigest()


def _seeds(given: Any) -> tuple[int, ...]:
    if not isinstance(given, list) or not given or any(type(seed) is not int or seed < 0 for seed in given):
        raise ValueError(f"seeds must be a list of whole numbers from 0 on, got {given!r}")
    if len(set(given)) < len(given):
        raise ValueError(f"seeds must differ, got {given}")
    return tuple(given)


def _worded(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join("/".join(Path(str(each)).parts[-2:]) for each in value) or "none"
    if not isinstance(value, Mapping):
        return str(value)
    options = ", ".join(f"{key} {option}" for key, option in value.items() if key != "name")
    return f"{value['name']} ({options})" if options else str(value["name"])

"""A model of Transformers on its way in: a folder of theirs becomes one of ours, in which all of ours work."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors.numpy import save_file

from regard import __version__
from regard.atomic import atomic_folder, write_checksums
from regard.checkpoint import (
    CARD,
    CONFIG,
    SCORES,
    WEIGHTS,
    check_out,
    is_model_file,
    portable,
    settings_table,
    write_json,
)
from regard.checkpoint.arrays import write_arrays
from regard.config import DataSettings, DecodeSettings, Settings, TextSettings
from regard.data.normalise import language_code
from regard.data.tokenizer import Tokenizer
from regard.foreign.architecture import (
    architecture,
    check_arrays,
    convert_arrays,
    model_settings,
    needed_bytes,
    table_sizes,
)
from regard.foreign.folder import ForeignFolder, check_memory, open_foreign, stored_numbers
from regard.foreign.vocabulary import Vocabulary, read_vocabulary
from regard.shapes import Array

README = "README.md"
LONGEST = 1 << 20  # tokens; larger limits stand for none
# What their search may be told that ours does not do, and the value that asks for nothing.
NOT_TAKEN = {
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": None,
    "repetition_penalty": 1.0,
    "diversity_penalty": 0.0,
    "num_beam_groups": 1,
    "do_sample": False,
    "begin_suppress_tokens": None,
}


@dataclass(frozen=True, eq=False)
class Incoming:
    """A model in our terms: settings, tokenizer and arrays, and what of its own settings ours do not say."""

    folder: ForeignFolder
    settings: Settings
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    arrays: Mapping[str, Array]
    notes: list[str]

    @property
    def title(self) -> str:
        """Name the kind of model as its program does."""
        return architecture(self.folder).title


def read_incoming(path: Path, src: str | None = None, tgt: str | None = None, strict: bool = False) -> Incoming:
    """Read a folder as ours; raise ValueError for what is not supported, naming it and the nearest that is.

    Languages that are not named are those that the folder names; where it names none, `strict` asks for them.
    """
    folder = open_foreign(path)
    made = model_settings(folder)  # refuses other models before anything large is looked at
    arrays = stored_numbers(path)
    check_arrays(folder, arrays, made)  # and sizes, before anything of such a size is made
    check_memory(needed_bytes(arrays), path)
    vocabulary = read_vocabulary(folder, table_sizes(folder))
    languages = find_languages(folder, vocabulary, src, tgt, strict)
    model, converted = convert_arrays(folder, arrays, made, vocabulary)
    text = TextSettings(max_len=longest_text(folder, vocabulary))
    data = DataSettings(src_lang=languages[0], tgt_lang=languages[1])
    settings = Settings(data, text, model, decode=decode_settings(folder, vocabulary))
    tokenizer = Tokenizer(vocabulary.models, languages=languages)
    if vocabulary.languages:
        settings = replace(settings, decode=replace(settings.decode, forced_bos=tokenizer.forced_bos))
    return Incoming(folder, settings, tokenizer, vocabulary, converted, notes(folder))


def longest_text(folder: ForeignFolder, vocabulary: Vocabulary) -> int:
    """Return how many tokens a model reads, without the end and the language."""
    own = folder.tokenizer.get("model_max_length")
    limits = [folder.whole("max_position_embeddings", 1024), own if type(own) is int and 0 < own < LONGEST else LONGEST]
    return max(min(limits) - 1 - bool(vocabulary.languages), 1)


def decode_settings(folder: ForeignFolder, vocabulary: Vocabulary) -> DecodeSettings:
    """Return the search that a folder asks for; one without a longest target gets ours."""
    said, own = folder.generation, DecodeSettings()
    beam, longest = said.get("num_beams") or 1, said.get("max_length")
    penalty, early = said.get("length_penalty"), said.get("early_stopping")
    rules = {True: "full", False: "heuristic", None: "heuristic", "never": "never"}
    penalty = 1.0 if penalty is None else penalty
    if type(beam) is not int or beam < 1 or early not in rules or type(penalty) not in {int, float}:
        given = f"num_beams {beam!r:.40}, early_stopping {early!r:.40}, length_penalty {penalty!r:.40}"
        raise ValueError(f"{folder.path}: a search must have a beam of 1 or more and a penalty, got {given}")
    made = replace(own, beam=beam, length_penalty=float(penalty))
    made = made if beam == 1 else replace(made, early_stopping=rules[early])  # pyright: ignore[reportArgumentType]
    begins = said.get("forced_bos_token_id")
    if type(begins) is int and begins in vocabulary.tgt.rows and not vocabulary.languages:
        made = replace(made, forced_bos=vocabulary.tgt.ours(begins))
    forced = said.get("forced_eos_token_id", folder.config.get("forced_eos_token_id"))
    made = replace(made, at_limit="among" if forced is None else "end")
    if type(longest) is int and 1 < longest < LONGEST:  # theirs counts the token that the decoder begins with
        made = replace(made, max_ratio=0.0, max_extra=longest - 1)
    return made


def notes(folder: ForeignFolder) -> list[str]:
    """Name what a folder asks of a search that ours does not do."""
    said = folder.generation
    other = [name for name, nothing in NOT_TAKEN.items() if said.get(name) not in (None, nothing)]
    words = [word for word in said.get("bad_words_ids") or [] if not isinstance(word, list) or len(word) != 1]
    found = [f"{name} {said[name]!r:.40}" for name in other]
    return found + ([f"bad_words_ids of several tokens, {words!r:.40}"] if words else [])


PAIR = re.compile(r"opus-mt(?:-tc-(?:base|big|bible-big|big-bible)|-synthetic)?-(?P<src>[^-]+)-(?P<tgt>[^-]+)$", re.I)


def find_languages(
    folder: ForeignFolder, vocabulary: Vocabulary, src: str | None, tgt: str | None, strict: bool
) -> tuple[str, str]:
    """Return a model's languages: those given, those its tokenizer names, or those of a name like opus-mt-zh-en."""
    named = PAIR.search(str(folder.config.get("_name_or_path") or "")) or PAIR.search(folder.path.resolve().name)
    by_name = (named["src"], named["tgt"]) if named else (None, None)
    keys = (("source_lang", "src_lang"), ("target_lang", "tgt_lang"))
    own = [next((folder.tokenizer[key] for key in both if folder.tokenizer.get(key)), None) for both in keys]
    told = [each if isinstance(each, str) else None for each in own]
    src, tgt = src or told[0] or by_name[0], tgt or told[1] or by_name[1]
    if strict and (src is None or tgt is None):
        rule = "the languages of a model must be known"
        raise ValueError(f"{folder.path}: {rule}, got {src} and {tgt}: name them with --from and --to")
    usual, known = DataSettings(), vocabulary.languages
    src, tgt = src or usual.src_lang, tgt or usual.tgt_lang
    if known and vocabulary.names_source:
        src = by_code(folder, known, src, "source", strict)
    return src, by_code(folder, known, tgt, "target", strict) if known else tgt


def by_code(folder: ForeignFolder, known: Mapping[str, int], language: str, what: str, strict: bool) -> str:
    """Return the code of a language of a model of several, as it spells it."""
    if language in known:
        return language
    alike = [code for code in known if language_code(code) == language_code(language)]
    if len(alike) == 1:
        return alike[0]
    if strict:
        some = ", ".join(sorted(known)[:20]) + (", …" if len(known) > 20 else "")
        rule = f"the {what} must be a language of the model ({some})"
        raise ValueError(
            f"{folder.path}: {rule}, got {language}: name one with --{'from' if what == 'source' else 'to'}"
        )
    return language


def write_incoming(model: Incoming, out: Path, overwrite: bool = False) -> None:
    """Write a model whole or not at all."""
    check_out(out, overwrite)
    with atomic_folder(out, is_model_file) as part:
        write_arrays(part / WEIGHTS, model.arrays, {"format": "pt"}, save_file)
        model.tokenizer.save(part)
        write_checksums(part)
        about = {"kind": model.title, "transformers": model.folder.config.get("transformers_version")}
        settings = settings_table(portable(model.settings))
        write_json(part / CONFIG, {"regard": __version__, "settings": settings, "imported": about})
        write_json(part / SCORES, {})
        (part / CARD).write_text(card(model, out.name), encoding="utf-8")


def header_value(readme: str, name: str) -> str | None:
    """Return a line of the header that model hubs read."""
    header = readme.split("---\n")[1] if readme.startswith("---\n") and readme.count("---\n") > 1 else ""
    found = re.search(rf"^{name}:[ \t]*(\S.*)$", header, re.M)
    return found and found[1].strip(" '\"")


TEXT = """# {name}

Translates {languages[0]} to {languages[1]}.

Licence: {licence}

## What it is

{title}, imported from {source}: {parameters:,} parameters, {layers} layers, width {width}, {pieces:,} pieces. The
numbers are those of the source, in float32; rows of the tables of tokens stand in another order.

## Data and licences

What it was trained on, its source says; so do its licence's terms.

## Scores

None were measured here: `regard evaluate` measures them.

## Limits

It reads at most {longest} pieces at a time, and searches as its source asks:
beam {beam}, length penalty {penalty:g}.{rest}

## How to make it again

```sh
regard import {source} --out {name}
```
"""


def card(model: Incoming, name: str) -> str:
    """Return the card of an imported model: what it was, under which licence, and what is not known of it."""
    made, folder = model.settings, model.folder.path
    source = str(model.folder.config.get("_name_or_path") or folder.resolve().name)
    readme = folder / README
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    return TEXT.format(
        name=name,
        languages=(made.data.src_lang, made.data.tgt_lang),
        licence=header_value(text, "license") or "not named in the folder that it was imported from",
        title=model.title,
        source="/".join(Path(source).parts[-2:]) if Path(source).is_absolute() else source,
        parameters=sum(array.size for array in model.arrays.values()),
        layers=f"{made.model.n_encoder_layers} + {made.model.n_decoder_layers}",
        width=made.model.d_model,
        pieces=model.tokenizer.vocab_size("tgt"),
        longest=made.text.max_len,
        beam=made.decode.beam,
        penalty=made.decode.length_penalty,
        rest="".join(f"\n- not taken over: {each}" for each in model.notes),
    )

"""Cards: what a written one has, and what a person is told to fill in."""

import json
import re
import shutil
from pathlib import Path

import pytest

from regard.zoo import CORPORA, OPEN, SECTIONS, corpora_of, lacks, licence_of, read_card, write_card
from tests.train.tiny import trained_once

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def model(tmp_path_factory, tmp_path):
    return shutil.copytree(trained_once(tmp_path_factory) / "model", tmp_path / "mine")


def learned_from(model, *sources):
    config = json.loads((model / "config.json").read_text())
    config["settings"]["data"]["train"] = list(sources)
    (model / "config.json").write_text(json.dumps(config))


def test_a_card_has_all_that_it_must(model):
    learned_from(model, "data/zh-en-tatoeba/train.tsv.xz", "data/zh-en-cedict/pairs.tsv.xz")
    assert write_card(model, "regard train --config recipes/mine.toml") == []
    card = read_card(model)
    assert card.startswith("# mine\n")
    assert re.findall(r"^## (.*)$", card, flags=re.MULTILINE) == list(SECTIONS)
    assert licence_of(card) == "that of its texts: CC BY 2.0 FR, CC BY-SA 4.0"
    scores = json.loads((model / "scores.json").read_text())
    for said in (
        "| zh-en-tatoeba | everyday sentences | CC BY 2.0 FR | Tatoeba (https://tatoeba.org) and its contributors",
        "CC-CEDICT, MDBG",
        f"| a test | no | {scores['test']['n']:,} | {scores['test']['bleu']:.2f} | {scores['test']['chrf']:.2f} |",
        scores["test"]["bleu_signature"],
        "regard train --config recipes/mine.toml",
        "5,968 parameters",
    ):
        assert said in card


def test_scores_of_text_unlike_the_training_text_come_first(model):
    learned_from(model, "data/zh-en-tatoeba/train.tsv.xz")
    scores = json.loads((model / "scores.json").read_text())
    own, other = ({**scores["test"], "on": on, "bleu": bleu} for on, bleu in (("zh-en-tatoeba/t", 30), ("wiki/t", 9)))
    how = {"precision": "float32", "method": "beam", "beam": 5}
    (model / "scores.json").write_text(json.dumps({**scores, "tests": [{**own, **how}, {**other, **how}]}))
    write_card(model, "regard train")
    card = read_card(model)
    assert card.index("| wiki/t | no | 10 | 9.00 |") < card.index("| zh-en-tatoeba/t | yes | 10 | 30.00 |")
    assert f"`{scores['test']['chrf_signature']}`, beam search with 5, in float32." in card


def test_a_model_without_positions_has_none(model):
    config = json.loads((model / "config.json").read_text())
    config["settings"]["model"]["position"]["name"] = "none"
    (model / "config.json").write_text(json.dumps(config))
    write_card(model, "regard train")
    assert "scaled_dot attention, no positions," in read_card(model)


def test_what_only_a_person_knows_is_left_to_be_filled_in(model):
    learned_from(model, "mine/pairs.tsv", "a.zh,a.en")
    assert write_card(model, "regard train") == [f"what is {OPEN}"]
    assert f"| mine/pairs.tsv | {OPEN} | {OPEN} | {OPEN} |" in read_card(model)
    assert lacks("# x\n") == [f"section {name!r}" for name in SECTIONS] + ["a line that begins with 'Licence: '"]


def test_a_missing_card_is_named(model):
    with pytest.raises(ValueError, match=f"{model}/card.md: this model has no card; regard export --made-by"):
        read_card(model)
    (model / "card.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=f"{model}/card.md: this card cannot be read"):
        read_card(model)


def test_aligned_files_and_repeats_are_one_text():
    sources = ["data/zh-en-law/a.zh,data/zh-en-law/a.en", "data/zh-en-law/train.tsv.xz", "data/zh-en-law/train.tsv.xz"]
    assert corpora_of(sources) == {"zh-en-law": CORPORA["zh-en-law"]}


@pytest.mark.skipif(not DATA.is_dir(), reason="the corpora are not here")
@pytest.mark.parametrize("name", [name for name in CORPORA if name != "zh-en-back"])  # which is made of others
def test_licences_are_those_that_the_corpus_names(name):
    told = (DATA / name / "README.md").read_text(encoding="utf-8").lower()
    for licence in CORPORA[name].licence.removesuffix(" FR").split(", "):
        for word in licence.removeprefix("free licences, ").lower().split(" and "):
            assert word.removeprefix("mostly ") in told or word.replace("-", " ") in told, (name, word)

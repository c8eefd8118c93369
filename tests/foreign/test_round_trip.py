"""Our models, exported as folders of Transformers and taken over again, are what they were, to the last bit."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.batch import make_batch
from regard.checkpoint import read_settings
from regard.checkpoint.weights import load_model, unique_tensors
from regard.exchange.outgoing import exported_folder, open_outgoing
from regard.exchange.to_transformers import write_transformers
from regard.foreign.incoming import read_incoming, write_incoming
from tests.exchange.small import CHINESE, DECODE, MODEL, part, save_small, small_checkpoint

VARIANTS = {
    "pre-norm": MODEL,
    "post-norm": replace(MODEL, norm_place="after", activation="gelu"),
    "learned": replace(MODEL, position=part("learned", max_len=31), activation="silu"),
    "none": replace(MODEL, position=part("none")),
    "three tables": replace(MODEL, tie="none"),
    "output apart": replace(MODEL, tie="inputs", norm_place="after"),
    "source apart": replace(MODEL, tie="target"),
    "bias, unscaled": replace(MODEL, norm_place="after", output_bias=True, scale_embedding=False),
}


def there_and_back(checkpoint, tmp_path):
    folder = save_small(tmp_path / "ours", checkpoint)
    outgoing = open_outgoing(folder, "transformers", "float32")
    with exported_folder(tmp_path / "theirs", False, outgoing, "transformers") as draft:
        write_transformers(outgoing, draft, "theirs", "float32")
    write_incoming(read_incoming(tmp_path / "theirs", "zh", "en", strict=True), tmp_path / "back")
    return folder, tmp_path / "back"


@pytest.mark.parametrize("name", VARIANTS)
def test_weights_settings_and_logits_are_the_same_to_the_last_bit(tmp_path, name):
    checkpoint = small_checkpoint(VARIANTS[name])
    _, back = there_and_back(checkpoint, tmp_path)
    found = load_model(back)
    assert found.settings.model == checkpoint.settings.model
    tensors, expected = unique_tensors(found.model), unique_tensors(checkpoint.model)
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[key], expected[key]) for key in expected)
    batch = make_batch([[7, 8, 9, 10, 11], [12], [13, 14, 9]], [[20, 21], [22, 23, 24, 25], [26]])
    with torch.no_grad():
        assert torch.equal(found.model(batch), checkpoint.model(batch))


def test_another_base_comes_back_as_a_table_of_the_same_numbers(tmp_path):
    checkpoint = small_checkpoint(replace(MODEL, position=part("sinusoidal", base=500.0)))
    folder, back = there_and_back(checkpoint, tmp_path)
    assert load_model(back).settings.model.position.name == "learned"
    one, other = (regard.load(each).translate(CHINESE, DECODE) for each in (folder, back))
    assert [each.tokens for each in one] == [each.tokens for each in other]


@pytest.mark.parametrize("decode", [DECODE, replace(DECODE, length_penalty=0.3), replace(DECODE, beam=1)])
def test_translations_are_the_same(tmp_path, decode):
    folder, back = there_and_back(small_checkpoint(replace(MODEL, tie="none"), decode=decode), tmp_path)
    made, theirs = (read_settings(each / "config.json").decode for each in (folder, back))
    assert (theirs.beam, theirs.length_penalty, theirs.early_stopping) == (made.beam, made.length_penalty, "full")
    texts = [*CHINESE, "橋很舊", "读 a book"]
    translators = [regard.load(each) for each in (folder, back)]
    one, other = (
        each.translate(texts, replace(each.settings, split="overlong", at_limit="behind", retry=False))
        for each in translators
    )
    assert [each.tokens for each in one] == [each.tokens for each in other]
    assert [each.score for each in one] == [each.score for each in other]

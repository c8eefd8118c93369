"""What no format can say is refused by name; folders are written whole, and neighbours stay."""

from dataclasses import replace

import pytest

from regard.config import ModelSettings, Settings
from regard.exchange.outgoing import RECORD, check_target, exported_folder, open_outgoing, refuse
from regard.zoo import HOME
from tests.exchange.small import MODEL, part, save_small, small_checkpoint


@pytest.mark.parametrize(
    ("to", "model", "said"),
    [
        ("transformers", replace(MODEL, position=part("rotary")), r"got position 'rotary': use --to onnx$"),
        ("ctranslate2", replace(MODEL, position=part("rotary")), r"got position 'rotary': use --to onnx$"),
        ("transformers", replace(MODEL, norm="rms"), r"got norm 'rms': use --to onnx$"),
        ("onnx", replace(MODEL, norm="batch"), r"got norm 'batch': export it without --to"),
        ("transformers", replace(MODEL, position=part("alibi")), r"position 'alibi': export it without --to"),
        ("transformers", replace(MODEL, attention=part("additive")), r"got attention 'additive': export it without"),
        ("onnx", replace(MODEL, position=part("sinusoidal", join="concatenate")), r"'sinusoidal' with {'join'"),
        ("onnx", ModelSettings(family="recurrent", attention=part("additive")), r"got family 'recurrent': export it"),
        ("ctranslate2", ModelSettings(family="decoder"), r"CTranslate2 cannot say .* got family 'decoder': export it"),
    ],
)
def test_what_a_format_cannot_say_is_refused_by_name(tmp_path, to, model, said):
    with pytest.raises(ValueError, match=said):
        refuse(tmp_path, to, replace(Settings(), model=model), joint=True)


def test_two_vocabularies_are_refused_where_a_tokenizer_has_one(tmp_path):
    with pytest.raises(ValueError, match=r"got text.joint false, two vocabularies: use --to ctranslate2 or --to onnx"):
        refuse(tmp_path, "transformers", replace(Settings(), model=MODEL), joint=False)


def test_a_model_in_a_folder_is_refused_with_the_folder(tmp_path):
    with pytest.raises(ValueError, match=r"zh-en-recurrent: Hugging Face's Transformers cannot .* family 'recurrent'"):
        open_outgoing(HOME / "zh-en-recurrent", "transformers", "float32")
    with pytest.raises(ValueError, match=r"unknown precision of CTranslate2 'int4'.*valid are float32, int8"):
        open_outgoing(HOME / "zh-en", "ctranslate2", "int4")


def test_positions_reach_as_far_as_targets_may(tmp_path):
    outgoing = open_outgoing(save_small(tmp_path / "a"), "transformers", "float32")
    assert (outgoing.longest_target, outgoing.n_positions) == (9, 512)
    made = small_checkpoint(replace(MODEL, position=part("learned", max_len=7)))
    outgoing = open_outgoing(save_small(tmp_path / "b", made), "transformers", "float32")
    assert (outgoing.longest_target, outgoing.n_positions) == (7, 7)
    longer = replace(outgoing.settings, decode=replace(outgoing.settings.decode, max_extra=600))
    assert replace(outgoing, settings=longer, weights=replace(outgoing.weights, limit=None)).n_positions == 1024


def write(out, overwrite=False, names=("config.json",)):
    with exported_folder(out, overwrite, OUTGOING[0], "transformers") as draft:
        for name in names:
            (draft / name).write_text("{}")


OUTGOING = []


@pytest.fixture(autouse=True, scope="module")
def outgoing(tmp_path_factory):
    OUTGOING[:] = [open_outgoing(save_small(tmp_path_factory.mktemp("m") / "m"), "transformers", "float32")]


def test_an_older_export_is_replaced_and_neighbours_stay(tmp_path):
    out = tmp_path / "out"
    write(out, names=("config.json", "old.bin"))
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=f"{out}: there is something here already: --overwrite"):
        write(out)
    write(out, overwrite=True)
    assert {each.name for each in out.iterdir()} == {"config.json", RECORD, "notes.txt"}
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_what_was_not_exported_is_never_replaced(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=f"got a folder without {RECORD}: name another"):
        check_target(tmp_path, overwrite=True)
    with pytest.raises(ValueError, match=r"config\.json: an exported model needs a folder, got a file of this name"):
        check_target(tmp_path / "config.json", overwrite=True)
    (tmp_path / RECORD).write_text('{"files": 3}')
    with pytest.raises(ValueError, match="files must be a list of names, got 3"):
        check_target(tmp_path, overwrite=True)


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="disk"), exported_folder(tmp_path / "o", False, OUTGOING[0], "onnx") as draft:
        (draft / "half").write_text("x")
        raise OSError("disk")
    assert list(tmp_path.iterdir()) == []

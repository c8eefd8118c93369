"""What commands print: labels, JSON, files that are complete or not there."""

import json
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from regard.terminal import MAX_COLUMNS, open_output, readable, shorten, to_json, to_json_line


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("▁In", "·In"),
        ("▁", "·"),
        ("西安", "西安"),
        (" ", "␣"),
        ("a\nb", "a␣b"),
        ("layer 3", "layer 3"),
        ("", "∅"),
        ("$x$", "$x$"),
        ("an_endless_identifier", "an_endless_iden…"),
        ("百分之六点一二三四五", "百分之六点一二…"),
    ],
)
def test_a_word_becomes_readable(word, expected):
    assert readable(word) == expected


@given(st.text(st.characters(exclude_categories=["Mn", "Me", "Cs"])))
def test_every_word_has_a_label_that_fits_on_one_line(word):
    label = readable(word)
    assert label.strip()
    assert cell_len(label) <= MAX_COLUMNS
    assert len(label.splitlines()) == 1


@pytest.mark.parametrize("most", range(1, 12))
def test_a_text_is_cut_to_its_columns(most):
    cut = shorten("介绍一下Xi'an", most)
    assert cell_len(cut) <= most
    assert cut == "介绍一下Xi'an"[: len(cut) - 1] + "…"


@dataclass(frozen=True)
class Measured:
    mean: float
    std: float = field(metadata={"json": "spread"})


def test_json_has_plain_values_and_the_keys_that_readers_know():
    found = to_json({1: Measured(0.5, float("nan")), "t": torch.tensor([1, 2]), "a": (np.float32(0.5), [np.arange(2)])})
    assert found == {"1": {"mean": 0.5, "spread": None}, "t": [1, 2], "a": [0.5, [[0, 1]]]}
    assert json.loads(to_json_line({"text": "西安", "inf": float("inf")})) == {"text": "西安", "inf": None}
    assert "西安" in to_json_line("西安")


@dataclass(frozen=True)
class Inner:
    rows: torch.Tensor


@dataclass(frozen=True)
class Outer:
    inner: Inner
    pair: tuple[int, float]
    text: str


def test_everything_becomes_json():
    value = Outer(Inner(torch.tensor([[1.0, 2.0], [3.0, float("nan")]])), (1, float("inf")), "介绍")
    expected = {"inner": {"rows": [[1.0, 2.0], [3.0, None]]}, "pair": [1, None], "text": "介绍"}
    assert to_json(value) == expected
    assert json.loads(json.dumps(to_json({1: value}), allow_nan=False)) == {"1": expected}


def test_an_output_file_is_complete_and_what_is_not_is_kept_beside_it(tmp_path, capsys):
    path = tmp_path / "out.txt"
    with open_output(path) as write:
        write("one")
        assert not path.exists()
    for half in ("half", "another"):
        with pytest.raises(KeyboardInterrupt), open_output(path) as write:
            write(half)
            raise KeyboardInterrupt
        assert "out.txt.unfinished" in capsys.readouterr().err.replace("\n", "")
    with pytest.raises(KeyError), open_output(tmp_path / "other.txt") as write:
        raise KeyError
    texts = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert texts == {"out.txt": "one\n", "out.txt.unfinished": "half\n", "out.txt.unfinished1": "another\n"}
    with open_output(None) as write:
        write("two")
    assert capsys.readouterr().out == "two\n"

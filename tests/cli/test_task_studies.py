"""The commands on tasks, run as a user runs them."""

import json
import sys
from dataclasses import replace
from functools import partial

import pytest

from regard.cli import main
from regard.study import dialogue, images, video
from tests.cli.pages import filled

STUDIES = {"images": images, "video": video, "dialogue": dialogue}


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs one command in this process, with a single epoch and few examples, and gives what it printed."""
    for study in STUDIES.values():
        monkeypatch.setattr(study, "SHOWN", study.SHOWN[:1])
        small = replace(study.QUICK.model, n_encoder_layers=1, d_model=16, n_heads=2, d_ff=16)
        monkeypatch.setattr(
            study, "QUICK", replace(study.QUICK, model=small, learn=replace(study.QUICK.learn, epochs=1))
        )
    few_clips, few_dialogues = partial(video.make_task, n_train=16, n_orbits=2), partial(dialogue.make_task, 16, 1)
    monkeypatch.setattr(video, "make_task", few_clips)
    monkeypatch.setattr(dialogue, "make_task", few_dialogues)

    def command(*args, code=0):
        monkeypatch.setattr(sys, "argv", ["regard", "study", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        return printed

    return command


@pytest.mark.parametrize(
    ("args", "bound"),
    [(("images", "grid_2d", "--patch", "4"), 1.0), (("video", "grid_3d"), 1 / 4), (("dialogue", "turns"), 1 / 6)],
)
def test_each_prints_json_with_its_table_and_draws(run, tmp_path, args, bound):
    out = tmp_path / "figure.png"
    done = run(*args, "none", "--quick", "--seeds", "1", "--seed", "3", "--json", "--out", out)
    found = json.loads(done.out)
    assert [row["name"] for row in found["rows"]] == [args[1], "none"]
    assert [trial["seed"] for row in found["rows"] for trial in row["trials"]] == [3, 3]
    none = found["rows"][1]
    assert none["bound"] == pytest.approx(bound)
    assert none["test"]["mean"] == none["shuffled"]["mean"] <= none["bound"] + 1e-9
    assert out.read_bytes().startswith(b"\x89PNG")
    table = found["tables"]["accuracy"]
    assert (found["study"], list(found["tables"])) == (args[0], ["accuracy"])
    assert table["columns"][-2:] == ["upper bound", "shuffled"]
    assert [row[0] for row in table["rows"]] == [args[1], "none"]
    assert found["signature"]["command"].startswith(f"regard study {' '.join(args)} none --quick --seeds 1 --seed 3")
    assert f"| {args[1]} | " in filled(found)
    assert "--out" not in found["signature"]["command"] and "--json" not in found["signature"]["command"]


def test_a_figure_is_saved_where_it_is_asked_for(run, tmp_path):
    out = tmp_path / "figure.pdf"
    assert "figure saved as" in run("dialogue", "none", "--quick", "--seeds", "1", "--out", out).err
    assert out.read_bytes().startswith(b"%PDF")


def test_the_table_is_for_people(run):
    done = run("dialogue", "none", "sinusoidal", "--quick")
    assert "Dialogues of 12 classes" in done.out and "2 seeds" in done.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("images", "grid2d"), "unknown position 'grid2d': did you mean 'grid_2d'"),
        (("images", "grid_2d:row,line"), "unknown axis of 'grid_2d:row,line' 'line'"),
        (("images", "--patch", "3"), "must divide 8 × 8 pixels, got 3"),
        (("images", "--seeds", "0"), "--seeds must be 1 or more, got 0"),
        (("video", "--directions", "6"), "directions must be 4 or 8, got 6"),
        (("dialogue", "--out", "figure.bmp"), "got 'figure.bmp'"),
        (("dialogue", "--device", "abacus"), "unknown device 'abacus'"),
    ],
)
def test_mistakes_end_in_one_line(run, args, said):
    error = run(*args, "--quick", code=2).err
    assert said in " ".join(error.split())
    assert "Traceback" not in error

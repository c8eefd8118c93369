"""The commands of the studies that train and time, run as a user runs them."""

import json
import sys

import pytest

from regard.cli import main
from regard.study import complexity as complexity_study
from tests.cli.pages import filled
from tests.study.test_complexity import TINY
from tests.study.test_position_probe import make_bert, make_tokenizer, texts
from tests.train.tiny import TABLES, reversals, write_tsv


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs one command in this process and gives what it printed."""

    def command(*args, code=0):
        monkeypatch.setattr(sys, "argv", ["regard", "study", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        assert "Traceback" not in printed.err
        return printed

    return command


def test_complexity_prints_json_with_tables_and_draws(run, tmp_path, monkeypatch):
    monkeypatch.setitem(complexity_study.SETTINGS, "cpu", TINY)
    monkeypatch.setattr(complexity_study, "peak_bytes", lambda *_: None)
    figure = tmp_path / "figure.svg"
    printed = run("complexity", "--device", "cpu", "--json", "--out", figure)
    found = json.loads(printed.out)
    assert [layer["name"] for layer in found["layers"]][:3] == ["attention", "recurrence", "convolution"]
    assert figure.exists()
    assert (found["study"], found["signature"]["command"]) == ("complexity", "regard study complexity --device cpu")
    assert list(found["tables"]) == ["laws", "time-over-n", "time-over-d", "training"]
    assert "`regard study complexity --device cpu`" in filled(found)
    assert {"settings", "paces", "dtype"} <= found.keys() and "race" in found["settings"]
    assert "measuring time and memory over n" in printed.err


def test_bottleneck_prints_json_with_its_table_and_draws(run, tmp_path):
    given = ("--length", 4, "--width", 8, "--steps", 2, "--seeds", 1, "--quick", "--device", "cpu")
    drawing = tmp_path / "figure.svg"
    found = json.loads(run("bottleneck", *given, "--json", "--out", drawing).out)
    assert [each["context"] for each in found["contexts"]] == ["attention", "last state"]
    assert [row[0] for row in found["tables"]["lengths"]["rows"]] == ["2", "4"]
    assert "| 2 | " in filled(found) and drawing.exists()


def test_position_probe_reads_a_hugging_face_folder(run, tmp_path):
    make_tokenizer().save_pretrained(tmp_path / "bert")
    make_bert().save_pretrained(tmp_path / "bert")
    data = tmp_path / "text.tsv"
    data.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in texts(20)), encoding="utf-8")
    given = (f"hf:{tmp_path / 'bert'}", "--data", data, "--device", "cpu")
    found = json.loads(run("position-probe", *given, "--json", "--out", tmp_path / "figure.svg").out)
    assert [row[1] for row in found["tables"]["stream"]["rows"]] == ["words alone", "embedding", "layer 0", "layer 1"]
    assert (
        found["signature"]["pairs"] == 20 and found["model"].startswith("hf:") and str(tmp_path) not in found["model"]
    )
    assert (tmp_path / "figure.svg").exists()
    error = run("position-probe", f"hf:{tmp_path / 'nothing'}", code=2).err
    assert "cannot be opened as a Hugging Face model" in " ".join(error.split())


@pytest.mark.parametrize(("study", "row"), [("norms", "| 0.03 | "), ("residuals --layers 1 --layers 2", "| 2 | ")])
def test_norms_and_residuals_print_json_with_their_tables_and_draw(run, tmp_path, study, row):
    drawing = tmp_path / "figure.svg"
    given = (*study.split(), "--steps", 1, "--seeds", 1, "--quick", "--device", "cpu")
    found = json.loads(run(*given, "--json", "--out", drawing).out)
    assert found["study"] == study.split()[0] and found["settings"]["steps"] == 1
    assert row in filled(found) and drawing.exists()


def test_permutation_prints_json_with_its_table_and_draws(run, tmp_path):
    drawing = tmp_path / "figure.svg"
    given = ("none", "rotary", "--steps", 2, "--quick", "--device", "cpu")
    found = json.loads(run("permutation", *given, "--json", "--out", drawing).out)
    assert [each["encoding"] for each in found["encodings"]] == ["none", "rotary"]
    assert "| rotary | " in filled(found) and drawing.exists()


def test_extrapolate_trains_the_named_schemes(run):
    given = ("--length", 4, "--steps", 2, "--quick", "--device", "cpu")
    found = json.loads(run("extrapolate", "alibi", "learned", *given, "--json").out)
    assert [scheme["name"] for scheme in found["schemes"]] == ["alibi", "learned"]
    assert (
        found["signature"]["command"]
        == "regard study extrapolate alibi learned --length 4 --steps 2 --quick --device cpu"
    )
    assert [row[0] for row in found["tables"]["losses"]["rows"]] == ["alibi", "learned"]
    assert "| alibi | " in filled(found)
    assert "by_place" in found["schemes"][0]
    assert "not defined" in run("extrapolate", "learned", *given).out
    assert "unknown scheme 'aliby'" in run("extrapolate", "aliby", *given, code=2).err


def toml(values):
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())


@pytest.mark.slow
def test_ablate_runs_a_file_and_goes_on(run, tmp_path):
    text = write_tsv(tmp_path / "pairs.tsv", reversals(60, seed=8))
    tables = {**TABLES, "data": {**TABLES["data"], "train": [text.name]}}
    tables["train"] = {**TABLES["train"], "max_steps": 4, "max_epochs": "none", "patience": "none"}
    parts = [f"[base.{name}]\n{toml(values)}" for name, values in tables.items()]
    parts.append('[[variant]]\nname = "rms"\npart = "norm"\nset = ["model.norm=rms"]')
    (tmp_path / "mine.toml").write_text("\n".join(parts))
    given = (
        tmp_path / "mine.toml",
        "--corpora",
        tmp_path,
        "--folder",
        tmp_path / "study",
        "--jobs",
        2,
        "--device",
        "cpu",
    )
    found = json.loads(run("ablate", *given, "--json").out)
    assert [line["variant"] for line in found["lines"]] == ["baseline", "rms"]
    assert found["missing"] == 0
    command = f"regard study ablate {tmp_path / 'mine.toml'} --corpora CORPORA --device cpu --jobs 2"
    assert found["signature"]["command"] == command and found["signature"]["seed"] == "0"
    assert str(tmp_path) not in json.dumps(found).replace(str(tmp_path / "mine.toml"), "")
    assert [row[1] for row in found["tables"]["variants"]["rows"]] == ["baseline", "rms"]
    assert "| norm | rms | " in filled(found)
    again = run("ablate", *given)
    assert "seed 0" not in again.err
    assert "rms" in again.out
    shown = run("ablate", *given, "--show")
    assert (shown.out, "at a time" in shown.err) == (again.out, False)
    assert "there is no CUDA device" not in run("ablate", *given[:-1], "cuda", "--show", code=2).err


def test_ablate_wants_a_file_or_quick(run, tmp_path):
    assert "name a file of variants" in run("ablate", code=2).err
    assert "not both" in run("ablate", tmp_path / "x.toml", "--quick", code=2).err
    assert "x.toml" in run("ablate", tmp_path / "x.toml", code=2).err


@pytest.mark.slow
def test_the_quick_ablation_runs_from_nothing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = json.loads(run("ablate", "--quick", "--only", "rotary", "--json").out)
    lines = {line["variant"]: line for line in found["lines"]}
    assert set(lines) == {"baseline", "rotary"}
    assert lines["baseline"]["quality"]["n"] == 2

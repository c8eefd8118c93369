"""The commands about questions, run as a user runs them: train, test, ask."""

import io
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from socket import gethostname

import pytest

from regard.cli import main, qa
from regard.qa.data import make_facts

SETS = ["model.d_model=16", "model.d_ff=24", "model.n_encoder_layers=1", "train.epochs=1", "pretrain.epochs=1"]
CONTEXT = "Anna lives in Oslo. Ben works as a baker."


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs one command in this process and gives what it printed."""

    def command(*args, code=0, stdin=""):
        monkeypatch.setattr(sys, "argv", ["regard", "qa", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        assert "Traceback" not in printed.err
        return printed

    return command


def sets():
    return [part for each in SETS for part in ("--set", each)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("questions") / "facts.jsonl"
    rows = [
        {"question": q.text, "context": q.context, "answers": [{"text": a.text, "start": a.start} for a in q.answers]}
        for q in make_facts(60, seed=2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def reader(tmp_path_factory, data):
    """Trains once; what it has learned does not matter here."""
    out = tmp_path_factory.mktemp("run") / "reader"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(
            sys, "argv", ["regard", "qa", "train", "--data", str(data), "--out", str(out), "--quick", *sets()]
        )
        main()
    return out


def test_train_keeps_a_reader_with_its_scores(reader):
    scores = json.loads((reader / "scores.json").read_text())
    assert scores["start"] == "scratch"
    assert scores["valid"]["n"] == 6
    assert scores["valid"]["rules"] == "squad"


def test_a_folder_that_exists_is_refused_before_any_work(run, data, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    args = ("train", "--data", data, "--out", tmp_path / "out", "--quick")
    assert f"{tmp_path / 'out'}: there is something here already: --overwrite" in run(*args, code=2).err
    run(*args, "--overwrite", *sets())
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_a_second_training_into_the_same_folder_is_refused(data, tmp_path, monkeypatch):
    options = {"out": tmp_path / "new" / "out", "data": [str(data)], "quick": True, "set_": SETS}

    def fit_beside(*args):
        monkeypatch.setattr(qa, "fit", fit)
        holder = f"while process {os.getpid()} on {gethostname()} trains"
        with ThreadPoolExecutor(1) as other, pytest.raises(ValueError, match=holder):
            other.submit(qa.train, **options).result()
        return fit(*args)

    fit = qa.fit
    monkeypatch.setattr(qa, "fit", fit_beside)
    qa.train(**options)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]
    assert "model.safetensors" in [path.name for path in (tmp_path / "new" / "out").iterdir()]


@pytest.mark.parametrize("start", ["pretrained", "model"])
def test_every_start_has_its_command(run, data, tmp_path, start):
    from tests.qa.test_train import translator

    name = translator(tmp_path / "model") if start == "model" else start
    more = ["--set", "train.epochs=1"] if start == "model" else sets()
    done = run("train", "--data", data, "--valid", data, "--test", data, "--start", name, "--quick", "--json",
               "--out", tmp_path / "out", *more)  # fmt: skip
    found = json.loads(done.out)
    assert found["valid"] == found["test"]
    assert ("words, epoch 1" in done.err) == (start == "pretrained")
    assert (tmp_path / "out" / "config.json").exists()


def test_further_text_is_for_the_pretrained_start(run, data, tmp_path):
    (tmp_path / "text.txt").write_text("Zoe paints.\n")
    args = ["train", "--data", data, "--quick", "--out", tmp_path / "out", "--pretrain", tmp_path / "text.txt", *sets()]
    assert "--start scratch: leave one out" in run(*args, code=2).err
    run(*args, "--start", "pretrained")
    from regard.qa.model import load_reader

    tokenizer = load_reader(tmp_path / "out").tokenizer
    assert "Z" in "".join(tokenizer.pieces(range(tokenizer.vocab_size("src")), "src"))


def test_test_sets_the_reader_beside_baselines(run, reader, data):
    found = json.loads(run("test", "--model", reader, "--data", data, "--json").out)
    assert list(found)[:2] == ["reader", "best its pieces allow"]
    assert found["best its pieces allow"]["exact"] > 90
    assert found["sliding window"]["n"] == 60
    table = run("test", "--data", data).out
    assert "60 questions (squad)" in table
    assert "first sentence" in table
    assert "best its pieces" not in table
    assert "got neither" in run("test", "--data", data, "--no-baselines", code=2).err


def test_ask_marks_the_answer_and_shows_what_was_looked_at(run, reader, tmp_path):
    said = run("ask", "Where does Anna live?", "--model", reader, "--context", "-", "--n-best", "3", stdin=CONTEXT).out
    marked = said.splitlines()[0]
    assert marked.replace("»", "").replace("«", "") == CONTEXT
    assert marked.count("»") == marked.count("«") == 1
    for part in (
        "Most probable answers",
        "no answer in this text",
        "What each question word attended to",
        "Anna",
        "weights @ v differ",
    ):
        assert part in said
    found = json.loads(run("ask", "Where?", "-m", reader, "-c", "-", "--head", "0:1", "--json", stdin=CONTEXT).out)
    assert len(found["answers"]) == 5
    assert found["looked"]["heads"] == "layer 0, head 1"
    assert found["checks"]["weights"] < 1e-5
    assert found["checks"]["score"] < 1e-3


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.safetensors", b"")])
def test_ask_draws_or_keeps_what_it_saw(run, reader, tmp_path, name, magic):
    run("ask", "Where does Anna live?", "-m", reader, "-c", "-", "--trace", tmp_path / name, stdin=CONTEXT)
    assert (tmp_path / name).read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["train", "--out", "x"], "got none: name files with --data, or try --quick"),
        (["ask", "Where?", "-m", "nowhere", "-c", "-"], "nowhere: there is no such folder"),
        (["ask", "Where?", "-m", "READER", "-c", "-", "--head", "a:b"], "got 'a:b'"),
        (["ask", "Where?", "-m", "READER", "-c", "-", "--head", "7"], "got 7"),
        (["ask", "Where?", "-m", "READER", "-c", "-", "--out", "x.gif"], "got 'x.gif'"),
        (["ask", " ", "-m", "READER", "-c", "-"], "must have words, got ' '"),
    ],
)
def test_mistakes_end_in_one_line(run, reader, args, said):
    done = run(*[reader if each == "READER" else each for each in args], code=2, stdin=CONTEXT)
    assert said in done.err


@pytest.mark.slow
def test_the_quick_run_learns_its_facts(run, tmp_path):
    found = json.loads(run("train", "--quick", "--out", tmp_path / "out", "--json").out)
    assert found["valid"]["exact"] >= 98.0

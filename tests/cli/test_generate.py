"""The commands about models that write, run as a user runs them."""

import json

import pytest

import regard
from tests.cli.test_commands import run, trained  # noqa: F401 (fixtures)
from tests.train.texts import PERIOD, TABLES, write_period

SETS = [
    part
    for table, values in TABLES.items()
    for key, value in values.items()
    for part in ("--set", f"{table}.{key}={str(value).lower() if isinstance(value, bool) else value}")
]
LEARNS = ["--set", "train.max_steps=60", "--set", "train.lr=0.01", "--set", "train.valid_every=60"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run that knows its text by heart, made by the command itself."""
    import subprocess
    import sys

    place = tmp_path_factory.mktemp("texts")
    text = write_period(place / "text.txt")
    words = [sys.executable, "-m", "regard", "train", "--data", str(text), "--family", "decoder", "--preset", "tiny"]
    found = subprocess.run([*words, *SETS, *LEARNS, "--out", str(place / "run")], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "best validation loss 0." in found.stderr and "BLEU" not in found.stderr
    return place / "run"


def test_a_text_is_gone_on_with_as_far_as_asked(run, folder):  # noqa: F811
    found = run("generate", "wild fox", "--model", folder, "--greedy", "--tokens", 20)
    assert found.out == (PERIOD * 2)[:28] + "\n"
    found = run("generate", "fox\\nju", "-m", folder, "--temperature", 0.3, "--seed", 3, "--tokens", 4)
    assert found.out == "fox\njumps,\n"


def test_it_is_written_as_it_is_made(folder, monkeypatch, capsys):
    from regard.cli.generate import print_text

    seen = []

    def pieces():
        for piece in "abc":
            yield piece
            seen.append(capsys.readouterr().out)

    print_text("x", pieces(), first=True)
    assert seen == ["xa", "b", "c"]


def test_samples_differ_and_come_again(run, folder):  # noqa: F811
    asked = ("generate", "w", "--model", folder, "--samples", 3, "--temperature", 30.0, "--tokens", 12, "--json")
    found = json.loads(run(*asked, "--seed", 5).out)
    assert [one["sample"] for one in found] == [0, 1, 2] and len({one["text"] for one in found}) == 3
    assert all(len(one["tokens"]) == len(one["log_probs"]) for one in found)
    assert json.loads(run(*asked, "--seed", 5).out) == found != json.loads(run(*asked, "--seed", 6).out)
    assert run("generate", "w", "--model", folder, "--samples", 2, "--tokens", 3).out.count("\n---\n") == 1


def test_how_well_a_text_is_predicted(run, folder, tmp_path):  # noqa: F811
    (tmp_path / "a.txt").write_text(PERIOD * 3)
    told = json.loads(run("perplexity", tmp_path / "a.txt", "--model", folder, "--json").out)
    assert told["pieces"] == 3 * len(PERIOD) and 1 < told["perplexity"] < 1.5
    assert told["loss"] == pytest.approx(regard.load(folder).log_likelihood(PERIOD * 3).loss)
    assert "66 tokens: 0." in run("perplexity", tmp_path / "a.txt", "--model", folder).out


def test_a_text_is_traced(run, folder, tmp_path):  # noqa: F811
    printed = run("trace", "wild fox", "--model", folder, "--set", "max_extra=15").out
    assert "heads of decoder attention" in printed and "attended to" in printed
    seen = json.loads(run("trace", "wild fox", "--model", folder, "--json").out)
    assert seen["text"] == "wild fox" and seen["output"].startswith("wild fox") and seen["words"]
    assert json.loads(run("trace", "wild", "--model", folder, "--head", "decoder:0:1", "--json").out)["head"] == 1
    for name, more in (("a.safetensors", []), ("a.png", ["--figure", "heads"]), ("b.png", []), ("a.html", [])):
        run("trace", "wild fox", "--model", folder, "--set", "max_extra=9", "--out", tmp_path / name, *more)
        assert (tmp_path / name).stat().st_size > 1000
    out = run(
        "generate", "wild fox", "--model", folder, "--greedy", "--tokens", 9, "-o", tmp_path / "c.safetensors"
    ).out
    assert out == (PERIOD * 2)[:17] + "\n" == regard.load_trace(tmp_path / "c.safetensors").output + "\n"


def test_a_model_is_described(run, folder):  # noqa: F811
    assert "decoder" in run("info", folder).out


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("generate", "a"), "name a language model with --model"),
        (("generate", "wild Z", "--model", "RUN"), "characters that the model knows, got 'Z'"),
        (
            ("generate", "a", "--model", "RUN", "--samples", "0"),
            "--samples must be 1 or more, and 1 with --greedy, got 0",
        ),
        (("generate", "a", "--model", "RUN", "--greedy", "--samples", "2"), "got 2: leave it out"),
        (("generate", "a", "--model", "RUN", "--temperature", "0"), "temperature must be above 0, got 0.0"),
        (("generate", "a", "--model", "RUN", "--out", "x.png"), "x.png: a trace must end in .safetensors or .html"),
        (
            ("generate", "a", "--model", "TRANSLATOR"),
            "translates and does not generate text: use regard translate",
        ),
        (("translate", "a", "--model", "RUN"), "generates text and does not translate: use regard generate"),
        (("serve", "--model", "RUN"), "--model must be a translation model, got a decoder"),
        (("perplexity", "nowhere.txt", "--model", "RUN"), "nowhere.txt: no such file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, folder, trained, asked, message):  # noqa: F811
    places = {"RUN": str(folder), "TRANSLATOR": str(trained)}
    said = run(*(places.get(word, word) for word in asked), code=2).err
    assert message in " ".join(said.split())

"""The commands that train and translate, run as a user runs them: results, pipes, and bad input."""

import io
import json
import shutil
import signal
import sys
from types import SimpleNamespace

import pytest

import regard.cli.train
from regard.cli import main
from regard.cli.translate import back_translations, pick_model
from regard.pipeline.translator import Alternative, Translation
from regard.zoo import present
from tests.train.tiny import TABLES, reversals, trained_once, write_tsv
from tests.zoo.standin import make_zoo

PAIRS = reversals(60, seed=8)
SETS = [
    part
    for table, values in TABLES.items()
    for key, value in values.items()
    for part in ("--set", f"{table}.{key}={str(value).lower() if isinstance(value, bool) else value}")
]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    return trained_once(tmp_path_factory)


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs one command in this process and gives what it printed."""

    def command(*args, code=0, stdin=""):
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        try:
            main()
            found = 0
        except SystemExit as stop:
            found = stop.code or 0
        printed = capsys.readouterr()
        assert found == code, printed.err
        assert "Traceback" not in printed.err
        return printed

    return command


@pytest.fixture
def text(tmp_path):
    return write_tsv(tmp_path / "pairs.tsv", PAIRS)


@pytest.fixture
def refused(run, tmp_path):
    """Trains on bad input, which must end in one line and leave nothing behind, and gives that line."""

    def training(*args):
        before = sorted(tmp_path.rglob("*"))
        out = tmp_path / "runs" / "mine"
        error = run("train", "--out", out, *SETS, *args, code=2).err
        assert sorted(tmp_path.rglob("*")) == before
        return error[error.rindex("error:") :].strip()

    return training


def test_training_says_what_it_does_and_leaves_a_model(run, text, tmp_path):
    done = run("train", "--data", text, "--out", tmp_path / "run", *SETS)
    assert done.out == ""
    for said in ("60 pairs read", "transformer with", "step 4: validation loss", "all 12 steps are done", "model in"):
        assert said in done.err
    assert "languages src → tgt; not recognised by script: name with --from and --to" in " ".join(done.err.split())
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"model", "checkpoints", "config.json", "log.txt", "metrics.jsonl", "training.png", "data"} <= names
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    error = run("train", "--data", text, "--out", tmp_path / "run", *SETS, code=2).err
    assert "--resume continues its run, --overwrite replaces it" in error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_says_how_to_go_on(run, text, tmp_path, monkeypatch, number, code):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(regard.cli.train, "training_curve", lambda out: lambda progress: signal.raise_signal(number))
        error = run("train", "--data", text, "--out", out, *SETS, code=code).err
    assert f"stopped by {number.name}: resume with regard train --out {out} --resume" in error
    assert "resuming from step 4" in run("train", "--out", out, "--resume").err


def test_a_loss_that_is_no_number_names_step_and_batch(run, text, tmp_path):
    out = tmp_path / "run"
    run("train", "--data", text, "--out", out, *SETS, "--set", "train.max_steps=4")
    wild = ("train.max_steps=40", "train.lr=1e38", "train.clip=none", "train.schedule=constant")
    error = run("train", "--out", out, "--resume", *(part for each in wild for part in ("--set", each)), code=2).err
    assert "not finite" in error
    assert "at step" in error or "after step" in error
    assert "batch" in error
    assert "step-00000004, is kept" in error
    calm = ("train.lr=0.001", "train.clip=1.0", "train.max_steps=6")
    run("train", "--out", out, "--resume", *(part for each in calm for part in ("--set", each)))


def test_misaligned_files_are_refused(refused, tmp_path):
    (tmp_path / "a.src").write_text("".join(f"{src}\n" for src, _ in PAIRS))
    (tmp_path / "a.tgt").write_text("".join(f"{tgt}\n" for _, tgt in PAIRS[:-7]))
    error = refused("--data", f"{tmp_path}/a.src,{tmp_path}/a.tgt")
    assert f"{tmp_path}/a.src and {tmp_path}/a.tgt must have the same number of lines, got 60 and 53" in error


def test_another_encoding_is_refused(refused, text):
    lines = text.read_bytes().splitlines(keepends=True)
    lines[41] = "süß\tsauer\n".encode("latin-1")
    text.write_bytes(b"".join(lines))
    error = refused("--data", text)
    assert f"{text}, line 42: text must be UTF-8" in error


def test_one_column_is_refused(refused, text):
    text.write_text("".join(f"{src}\n" for src, _ in PAIRS))
    error = refused("--data", text)
    assert f"{text}, line 1: a line must have two columns separated by a tab, got 1" in error


@pytest.mark.parametrize(("content", "said"), [("", "got an empty file"), ("a b c\tc b a\n", "10 pairs or more")])
def test_an_empty_text_and_one_sentence_are_refused(refused, text, content, said):
    text.write_text(content)
    error = refused("--data", text)
    assert said in error


def test_a_missing_text_is_refused(refused, tmp_path):
    assert "none.tsv" in refused("--data", tmp_path / "none.tsv")
    assert "no training text: name it with --data" in refused()


def test_a_line_of_100_000_characters_is_left_out_and_reported(run, text, tmp_path):
    write_tsv(text, [*PAIRS, ("a " * 50_000, "b"), *reversals(20, seed=99)])
    done = run("train", "--data", text, "--out", tmp_path / "run", *SETS)
    assert "81 pairs read" in done.err
    assert f"1 left out with an overlong side ({text}, line 61)" in done.err


def test_unknown_settings_are_refused(refused, text, tmp_path):
    config = tmp_path / "mine.toml"
    config.write_text("[train]\nlearning_rate = 1\n")
    assert f"{config}: unknown setting 'train.learning_rate'" in refused("--data", text, "--config", config)
    assert "unknown setting 'trian'" in refused("--data", text, "--set", "trian.lr=1")
    config.write_text("[train\n")
    assert f"{config}: Expected ']'" in refused("--data", text, "--config", config)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("--set", "train.lr"), "a setting must look like train.lr=3e-4, got 'train.lr'"),
        (("--set", "train.lr=fast"), "train.lr must be float, got 'fast'"),
        (("--set", "train.max_steps=1.5"), "train.max_steps must be"),
        (("--set", "model.d_model=15"), "d_model must be divisible by n_heads, got 15 and 2"),
        (("--preset", "huge"), "unknown preset 'huge'"),
        (("--family", "transformers"), "unknown family 'transformers': did you mean 'transformer'"),
        (("--set", "train.batch_tokens=5"), "train.batch_tokens must hold the longest sentence"),
        (("--set", "train.device=cuda:9"), "cuda"),
        (("--set", "train.device=toaster"), "unknown device 'toaster': valid are auto, cpu, cuda, cuda:N"),
    ],
)
def test_settings_that_cannot_be_are_refused(refused, text, said, message):
    assert message in refused("--data", text, *said)


def test_a_pipe_is_translated_line_by_line(run, trained):
    lines = ["a b c", "", "d e f g", "   ", "c b a", ""]
    out = run("translate", "--model", trained, stdin="\n".join(lines) + "\n").out.split("\n")
    assert len(out) == len(lines) + 1
    assert [bool(line) for line in out[:-1]] == [True, False, True, False, True, False]
    again = run("translate", "--model", trained / "model", *[line for line in lines if line.strip()]).out.split("\n")
    assert again[:-1] == [line for line in out if line]


def test_a_file_is_translated_into_a_file(run, trained, tmp_path):
    (tmp_path / "in.txt").write_text("a b c\n\nd e f\n")
    done = run("translate", "-m", trained, "-i", tmp_path / "in.txt", "-O", tmp_path / "out.txt", "--beam", "1")
    assert done.out == ""
    lines = (tmp_path / "out.txt").read_text().split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False]


def test_translations_as_json_and_n_best(run, trained):
    found = [json.loads(line) for line in run("translate", "-m", trained, "--json", stdin="a b\n\n").out.splitlines()]
    assert found[0].keys() >= {"text", "score", "tokens", "alternatives"}
    assert found[1]["text"] == ""
    lines = run("translate", "-m", trained, "--n-best", "3", stdin="a b c\n").out.splitlines()
    scores = [float(line.split("\t")[0]) for line in lines]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


def test_translating_says_what_is_wrong(run, trained, tmp_path):
    assert "there is no such model folder" in run("translate", "-m", tmp_path / "none", "a", code=2).err
    assert "unknown setting 'beem'" in run("translate", "-m", trained, "--set", "beem=1", "a", code=2).err
    damaged = shutil.copytree(trained / "model", tmp_path / "model")
    (damaged / "model.safetensors").write_bytes(b"PK\x03\x04")
    assert f"{damaged}/model.safetensors: this is not a complete" in run("info", damaged, code=2).err


def test_scores_have_signatures(run, trained, tmp_path):
    text = write_tsv(tmp_path / "test.tsv", reversals(7, seed=77))
    found = json.loads(run("evaluate", "-m", trained, "--data", text, "--json").out)
    assert 0 <= found["bleu"] <= 100
    assert "version:" in found["bleu_signature"]
    assert "version:" in found["chrf_signature"]
    assert "BLEU" in run("evaluate", "-m", trained, "--data", text, "--beam", "1").out
    turned = write_tsv(tmp_path / "turned.tsv", [(tgt, src) for src, tgt in reversals(7, seed=77)])
    assert json.loads(run("evaluate", "-m", trained, "--data", turned, "--reverse", "--json").out) == found


def test_outputs_are_kept_and_systems_compared(run, trained, tmp_path):
    pairs = reversals(23, seed=77)
    text, out = write_tsv(tmp_path / "test.tsv", pairs), tmp_path / "out.jsonl"
    perfect, other = tmp_path / "perfect.txt", tmp_path / "other.txt"
    perfect.write_text("\n".join(tgt for _, tgt in pairs) + "\n")
    other.write_text("x\n" * 23)
    found = json.loads(
        run(
            *("evaluate", "-m", trained, "--data", text, "--json", "--out", out),
            *("--reference", other, "--against", perfect, "--resamples", "100"),
        ).out
    )
    mine, best = found["systems"]
    assert mine["bleu"] == found["bleu"] < 99 < best["bleu"]
    assert mine["bleu_interval"][0] <= mine["bleu"] + 5 and mine["bleu_p"] is None and best["bleu_p"] < 0.05
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["source"], row["references"]) for row in rows] == [(src, [tgt, "x"]) for src, tgt in pairs]
    assert all(0 <= row["bleu"] <= 100 and 0 <= row["chrf"] <= 100 for row in rows)
    run("evaluate", "-m", trained, "--data", text, "--out", tmp_path / "out.txt", "--resamples", "0")
    assert (tmp_path / "out.txt").read_text().splitlines() == [row["output"] for row in rows]
    short = write_tsv(tmp_path / "short.tsv", pairs[:5])
    said = run("evaluate", "-m", trained, "--data", short, "--against", perfect, code=2).err
    assert "a line for each of the 5 sentences, got 23" in " ".join(said.split())


def test_a_shortlist_is_learned_and_used(run, trained, text, tmp_path):
    listed = tmp_path / "words.shortlist"
    told = run("shortlist", "-m", trained, "--data", text, "-o", listed, "--frequent", "9", "--each", "4").err
    assert "learned from 60 pairs" in told and listed.exists()
    plain, short = (
        json.loads(run("evaluate", "-m", trained, "--data", text, "--json", *more).out)
        for more in ((), ("--shortlist", listed))
    )
    assert short["bleu"] > 0.9 * plain["bleu"] > 0
    assert run("translate", "-m", trained, PAIRS[0][0], "--shortlist", listed).out.strip()
    assert "does not exist" in run("shortlist", "-m", trained, "--data", text, "-o", "nowhere/x", code=2).err
    assert "this is not a shortlist" in run("translate", "-m", trained, "a", "--shortlist", text, code=2).err


def test_a_glossary_is_used_and_turned_round(run, trained, text, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("a\tj i|i j\n# b\tno\nc\th\tpreferred\n", encoding="utf-8")
    told = run("translate", "-m", trained, "a b c", "b c", "--glossary", terms).out.splitlines()
    plain = run("translate", "-m", trained, "a b c", "b c").out.splitlines()
    assert ("j i" in told[0] or "i j" in told[0]) and ("j i" not in plain[0] and "i j" not in plain[0])
    turned = run("translate", "-m", trained, "i j", "--glossary", terms, "--reverse").out
    assert "a" in turned.split()
    assert json.loads(run("evaluate", "-m", trained, "--data", text, "--json", "--glossary", terms).out)["n"] == 60
    assert "add --glossary" in run("translate", "-m", trained, "a", "--reverse", code=2).err
    terms.write_text("a\n", encoding="utf-8")
    said = " ".join(run("translate", "-m", trained, "a", "--glossary", terms, code=2).err.split())
    assert "terms.tsv:1: a line must be a term" in said and "got 'a'" in said


def test_markup_is_kept(run, trained):
    told = run("translate", "-m", trained, "a <i>b c</i> d<x/>", "a b", "--markup", "tags").out.splitlines()
    assert all(told[0].count(tag) == 1 for tag in ("<i>", "</i>", "<x/>")) and "<" not in told[1]
    rows = run("translate", "-m", trained, "a <i>b c</i>", "--markup", "tags", "--n-best", "2", "--set", "beam=2").out
    assert all("<i>" in row for row in rows.splitlines()) and len(rows.splitlines()) == 2
    said = " ".join(run("translate", "-m", trained, "a", "--markup", "html", code=2).err.split())
    assert "unknown kind of markup 'html'" in said


def test_a_model_describes_itself(run, trained):
    found = json.loads(run("info", trained, "--json").out)
    assert found.keys() == {"parameters", "precision", "shards", "bytes", "vocabulary", "scores", "settings"}
    assert found["settings"]["model"]["d_model"] == 16
    assert found["scores"]["test"]["bleu_signature"]
    assert "transformer" in run("info", trained / "model").out


def test_checkpoints_are_averaged(run, trained, tmp_path):
    assert "mean of 2 checkpoints" in run("average", trained, "--out", tmp_path / "mean", "--last", "2").err
    assert json.loads(run("info", tmp_path / "mean", "--json").out)["scores"]["averaged"]
    assert "the folder exists already" in run("average", trained, "--out", tmp_path / "mean", code=2).err
    error = run("average", tmp_path, "--out", tmp_path / "other", code=2).err
    assert "averaging needs 1 or more checkpoints, got 0" in error


def test_the_last_word_is_the_leader_s_alone(run, text, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.cli.train.run_training", lambda *_: SimpleNamespace(best={"bleu": 1.0}))
    assert "model in" in run("train", "--data", text, "--out", tmp_path / "run", *SETS).err
    monkeypatch.setenv("RANK", "1")
    assert "model in" not in run("train", "--data", text, "--out", tmp_path / "run", *SETS).err


@pytest.fixture(scope="session")
def home(tmp_path_factory, trained):
    return make_zoo(tmp_path_factory.mktemp("zoo"), trained, "zh-en", "en-zh")


def test_without_a_model_one_is_picked_by_the_text_and_said_on_stderr(home, capsys):
    folder, lines = pick_model(None, None, iter(["", "I like music.", "介绍"]), home)
    assert folder == home / "en-zh"
    assert list(lines) == ["", "I like music.", "介绍"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "translating with the bundled model en-zh\n"
    assert pick_model("zh", "en", iter(["x"]), home)[0] == home / "zh-en"


@pytest.mark.parametrize("text", ["介绍一下西安", "Introduce Xi'an"])
def test_a_command_without_a_model_translates_or_says_that_there_is_none(run, text):
    there = {each.src_lang for each in present().values()}
    if ("zh" if "介" in text else "en") in there:
        assert run("translate", text).out.strip()
    else:
        error = run("translate", text, code=2).err
        assert "no models come with" in error or "no bundled model translates" in error


def test_languages_that_the_model_does_not_have_are_refused(run, home):
    assert run("translate", "-m", home / "zh-en", "--from", "zh-CN", "--to", "en", "a b").out.strip()
    error = run("translate", "-m", home / "zh-en", "--to", "de", "a b", code=2).err
    assert "--to must be the model's own language, en, got de" in error


def test_back_translation_makes_a_corpus(run, trained, text, tmp_path):
    lines = ["a b c", "", "d\te f", "   "]
    plain = run("translate", "-m", trained, "a b c", "d e f").out.splitlines()
    made = run("translate", "-m", trained, "--pairs", stdin="\n".join(lines) + "\n").out
    assert made == f"{plain[0]}\ta b c\n{plain[1]}\td e f\n"
    made = run("translate", "-m", trained, "--pairs", "--tag", "<bt>", stdin="\n".join(lines)).out
    assert made == f"<bt> {plain[0]}\ta b c\n<bt> {plain[1]}\td e f\n"
    two = run("translate", "-m", trained, "--pairs", "--n-best", "2", "a b c").out.splitlines()
    assert [line.split("\t")[1] for line in two] == ["a b c"] * 2


def test_a_translation_of_no_words_is_no_pair():
    silent, spoken = (Translation(text, 0.0, [], [], [Alternative(text, 0.0)]) for text in ("", "c"))
    assert list(back_translations([silent, spoken, silent], ["a", "b", "d"], "<bt>")) == ["<bt> c\tb"]


def test_what_was_translated_back_can_be_learned_from(run, trained, tmp_path):
    (tmp_path / "mono.txt").write_text("".join(f"{tgt}\n" for _, tgt in PAIRS))
    made = ("translate", "-m", trained, "--pairs", "--tag", "<bt>", "--beam", "1")
    run(*made, "-i", tmp_path / "mono.txt", "-O", tmp_path / "bt.tsv")
    any_ratio = ("--set", "text.max_ratio=99")  # this model has not learned to end
    told = run("train", "--data", tmp_path / "bt.tsv", "--out", tmp_path / "run", *SETS, *any_ratio).err
    assert f"{len(PAIRS)} pairs read" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pairs", "--json"), "--json and --pairs exclude each other: leave one out"),
        (("--tag", "<bt>"), "--tag goes before the translations of --pairs, got '<bt>' without: add --pairs"),
        (("--precision", "int4"), "unknown precision 'int4': did you mean 'int8'"),
        (("--device", "gpu"), "unknown device 'gpu': did you mean 'cpu'? valid are auto, cpu, cuda"),
        (("--precision", "bfloat16"), "precision on a cpu must be float32 or int8, got 'bfloat16'"),
    ],
)
def test_translating_refuses_options_that_cannot_be(run, trained, options, message):
    assert message in run("translate", "-m", trained, *options, "a", code=2).err


def test_models_are_listed_or_said_to_be_none(run):
    done = run("models")
    listed = json.loads(run("models", "--json").out)
    assert [each["name"] for each in listed] == list(present())
    if listed:
        for each in listed:
            assert each["name"] in done.out
            assert "How to make it again" in run("models", each["name"]).out
            assert json.loads(run("models", each["name"], "--json").out)["card"].startswith("# ")
    else:
        assert "no models come with this copy" in done.err
        assert json.loads(run("models", "--json").out) == []
    error = run("models", "zh-eng", code=2).err
    assert "'zh-eng'" in error


def test_a_model_is_exported_in_fewer_bytes_with_scores_and_a_card(run, trained, tmp_path):
    text = write_tsv(tmp_path / "test.tsv", reversals(7, seed=77))
    out = tmp_path / "small"
    told = run("export", trained, "--out", out, "--shard-mib", "0.02", "--test", text, "--made-by", "regard train x")
    assert f"5,968 parameters as int8, 0.0 MiB in 2 files, in {out}" in told.err
    assert "the card still lacks what is (to be filled in)" in told.err
    found = json.loads(run("info", out, "--json").out)
    assert (found["precision"], found["shards"]) == ("int8", 2)
    assert found["scores"]["test"]["on"] == f"{tmp_path.name}/test.tsv"
    assert found["scores"]["test"]["n"] == 7
    assert found["scores"]["valid"]
    assert "regard train x" in (out / "card.md").read_text()
    assert "as int8" in run("info", out).out
    assert f"{out}: there is something here already: --overwrite" in run("export", trained, "--out", out, code=2).err
    run("export", trained, "--out", out, "--overwrite", "--precision", "bfloat16")
    assert json.loads(run("info", out, "--json").out)["precision"] == "bfloat16"


def test_exporting_leaves_what_is_not_of_a_model(run, trained, tmp_path):
    out = tmp_path / "out"
    run("export", trained, "--out", out, "--shard-mib", "0.02")
    (out / "notes.txt").write_text("mine")
    (tmp_path / "out.old").mkdir()
    (tmp_path / "out.partial").write_text("mine")
    run("export", trained, "--out", out, "--overwrite")
    assert sorted(path.name for path in out.iterdir()) == [
        *("checksums.json", "config.json", "model.safetensors", "notes.txt", "scores.json", "tokenizer.model"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.old", "out.partial"]


def test_exporting_over_something_else_is_refused(run, trained, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "file").touch()
    for out, said in (
        (tmp_path, f"{tmp_path / 'config.json'}: --overwrite replaces a model, got a file of something else"),
        (tmp_path / "file", f"{tmp_path / 'file'}: a model needs a folder, got a file of this name"),
        (trained, f"{trained}: --overwrite replaces a model, got the folder of a run"),
    ):
        assert said in run("export", trained, "--out", out, "--overwrite", code=2).err
    assert (tmp_path / "config.json").read_text() == "{}"


def test_exporting_says_what_is_wrong(run, trained, tmp_path):
    out = tmp_path / "small"
    assert "unknown precision 'int4'" in run("export", trained, "--out", out, "--precision", "int4", code=2).err
    assert "got 0.0005 MiB" in run("export", trained, "--out", out, "--shard-mib", "0.0005", code=2).err
    assert "there is no such model folder" in run("export", tmp_path / "none", "--out", out, code=2).err
    assert not out.exists()
    run("export", trained, "--out", out, "--shard-mib", "0.02")
    second = out / "model-00002-of-00002.safetensors"
    second.unlink()
    assert f"{second}: this file is missing" in run("translate", "-m", out, "a", code=2).err


def test_a_model_learns_on_by_one_command(run, trained, text, tmp_path):
    few = ("--set", "train.max_steps=2", "--set", "train.batch_tokens=256", "--set", "train.device=cpu")
    told = run("train", "--init", trained, "--data", text, "--out", tmp_path / "run", *few).err
    assert "step 0: validation loss" in told
    assert "model in" in told
    error = run("train", "--init", trained, "--preset", "tiny", "--data", text, "--out", tmp_path / "x", code=2).err
    assert "got --preset tiny: leave one out" in error


@pytest.mark.parametrize(
    ("to", "title"), [("transformers", "Hugging Face's Transformers"), ("ctranslate2", "CTranslate2")]
)
def test_a_model_is_exported_for_another_program(run, trained, tmp_path, to, title):
    out = tmp_path / "out"
    told = run("export", trained, "--out", out, "--to", to)
    assert f"{title} in float32" in told.err and f"{out / 'README.md'} shows how to run it" in told.err
    assert "the card still lacks what is (to be filled in)" in told.err
    assert json.loads((out / "regard.json").read_text())["format"] == to
    again = run("export", trained, "--out", out, "--to", to, code=2).err
    assert f"{out}: there is something here already: --overwrite replaces an older export" in again
    run("export", trained, "--out", out, "--to", to, "--overwrite")


def test_exporting_for_another_program_says_what_is_wrong(run, trained, tmp_path):
    out = tmp_path / "out"
    for options, said in (
        (("--to", "tflite"), "unknown format 'tflite': "),
        (("--to", "ctranslate2", "--shard-mib", "1"), "--shard-mib must go without --to, got --to ctranslate2: export"),
        (("--to", "transformers", "--precision", "int8"), "unknown precision of Hugging Face's Transformers 'int8'"),
    ):
        assert said in run("export", trained, "--out", out, *options, code=2).err
    recurrent = run("export", "zh-en-recurrent", "--out", out, "--to", "ctranslate2", code=2).err
    assert "CTranslate2 cannot say this model exactly, got family 'recurrent': export it without --to" in recurrent
    assert not out.exists()

"""The commands of the core, and what the others say."""

import json
import shutil

import pytest

import regard
from regard.cli import COMMANDS, GROUPS
from regard.config import DecodeSettings
from regard.serve.serialize import PLACEHOLDER
from regard.zoo import HOME

TEXTS = ["介绍一下西安", "我喜欢音乐。", "他是我的朋友。", "火车几点到？"]
CORE = {"translate", "evaluate", "shortlist", "trace", "models", "info", "serve", "native", "clean", "import"}
EXTRA = "needs torch, which is not installed: pip install 'regard[train]'"


def lines(printed):
    return printed.out.splitlines()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "pairs.tsv"
    file.write_text("我喜欢音乐。\tI like music.\n他是我的朋友。\tHe is my friend.\n你好\tHello\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("search", [["--beam", "1"], [], ["--set", "method=sample", "--set", "seed=3"]])
def test_each_search_in_each_precision(run, precision, search):
    found = lines(run("translate", "--precision", precision, *search, *TEXTS))
    assert len(found) == len(TEXTS) and all(found)
    if "method=sample" not in search:
        assert found[1] == "I like music."


def test_a_seed_gives_the_same_samples(run):
    first, again, other = (
        lines(run("translate", "--set", "method=sample", "--set", f"seed={seed}", *TEXTS)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_n_best_and_json(run):
    rows = [line.split("\t") for line in lines(run("translate", "--n-best", "3", TEXTS[1]))]
    assert len(rows) == 3 and float(rows[0][0]) > float(rows[1][0]) and rows[0][1] == "I like music."
    found = json.loads(run("translate", "--json", "--n-best", "2", TEXTS[1]).out)
    assert found["text"] == "I like music." and len(found["alternatives"]) == 2


def test_a_prefix_begins_the_translation():
    translator = regard.load("zh-en")
    settings = DecodeSettings(beam=2, n_best=2)
    assert translator.translate(TEXTS[1], settings, prefix="Music")[0].text.startswith("Music")


def test_a_text_is_cut_into_sentences_and_a_long_one_further(run):
    assert lines(run("translate", TEXTS[1] + TEXTS[2])) == ["I like music. He is my friend."]
    printed = run("translate", "-m", "zh-en", "西安" * 150)
    assert "cut in mid-sentence" in printed.err and printed.out.strip()


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_threads_do_not_change_the_result(run, monkeypatch, precision):
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(lines(run("translate", "--precision", precision, *TEXTS)))
    assert found[0] == found[1]


def test_a_shortlist_is_learned_and_used(run, pairs, tmp_path):
    file = tmp_path / "zh-en.shortlist"
    run("shortlist", "-m", "zh-en", "--data", pairs, "--out", file)
    assert lines(run("translate", "-m", "zh-en", "--shortlist", file, TEXTS[1])) == ["I like music."]


def test_terms_and_tags_need_nothing_more(run, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("音乐\tmelody|melodies\n", encoding="utf-8")
    marked = run("translate", "--markup", "all", "--glossary", terms, "我喜欢<b>音乐</b>。")
    assert lines(marked) == ["I like <b>melody</b>."] or lines(marked) == ["I like <b>melodies</b>."]


def test_files_are_translated_to_files(run, tmp_path):
    text, out = tmp_path / "in.txt", tmp_path / "out.txt"
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    run("translate", "--input", text, "--out", out)
    assert len(out.read_text(encoding="utf-8").splitlines()) == len(TEXTS)


def test_evaluate_gives_outputs_and_lengths_without_bleu(run, pairs, tmp_path):
    out = tmp_path / "out.jsonl"
    printed = run("evaluate", "-m", "zh-en", "--data", pairs, "--json", "--out", out)
    told = " ".join(printed.err.split())
    assert "a score (BLEU, chrF) needs sacrebleu, which is not installed: pip install 'regard[train]'" in told
    found = json.loads(printed.out)
    assert found["bleu"] is None and found["chrf"] is None and found["n"] == 3 and found["systems"] == []
    assert found["lengths"]["source"] == 15 and found["lengths"]["reference"] == 34 and found["lengths"]["same"] >= 2
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows[0] == {
        **{"source": "我喜欢音乐。", "output": "I like music.", "references": ["I like music."]},
        **{"bleu": None, "chrf": None},
    }
    assert "outputs equal to a reference" in run("evaluate", "-m", "zh-en", "--data", pairs).out
    told = run("evaluate", "-m", "zh-en", "--data", pairs, "--against", "en-zh", code=2).err
    assert "--against needs sacrebleu" in told


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_trace_prints_what_each_word_attended_to(run, precision):
    told = run("trace", "--precision", precision, TEXTS[1]).out
    assert "I like music." in told and "音乐" in told and "How spread out" in told
    found = json.loads(run("trace", "--precision", precision, "--json", TEXTS[1]).out)
    assert found["output"] == "I like music." and found["source"][-1] == "</s>"
    assert [word["word"] for word in found["words"]] == ["I", "like", "music", "."]
    assert found["words"][2]["looked_at"][0]["word"] == "音乐"
    assert len(found["spread"]) == 6 + 2 + 2 and all(0 <= x <= 1 for each in found["spread"] for x in each["heads"])
    assert found["checks"]["weights"] < 1e-6 and found["checks"]["log_prob"] < (1e-4 if precision == "float32" else 1)


def test_trace_prints_one_head_and_its_terms(run):
    head = json.loads(run("trace", "--head", "cross:0:5", "--json", TEXTS[1]).out)
    assert all(abs(sum(row) - 1) < 1e-5 for row in head["weights"]) and len(head["queries"]) == len(head["weights"])
    split = json.loads(run("trace", "--head", "encoder:0:0", "--terms", "--json", TEXTS[1]).out)["terms"]
    assert len(split["names"]) == len(split["terms"]) == 5 and split["error"] < 1e-5
    assert "position–position" in run("trace", "--head", "encoder:0:0", "--terms", TEXTS[1]).out


def test_trace_saves_a_page_and_the_trace_itself(run, tmp_path, monkeypatch):
    page, file = tmp_path / "x.html", tmp_path / "x.safetensors"
    (tmp_path / "view.html").write_text(f"<html>{PLACEHOLDER}</html>", encoding="utf-8")
    monkeypatch.setattr("regard.serve.serialize.PAGE", tmp_path)  # the built page need not be there
    run("trace", "--out", page, TEXTS[1])
    saved = page.read_text(encoding="utf-8").split('id="regard-view">')[1].split("</script>")[0]
    view = json.loads(saved)["views"][0]
    assert view["output"] == "I like music."
    assert [kind["kind"] for kind in view["kinds"]] == ["encoder", "decoder", "cross"]
    run("trace", "--out", file, TEXTS[1])
    trace = regard.load_trace(file)
    assert trace.output == "I like music." and trace.check().weights < 1e-6
    told = " ".join(run("trace", "--out", tmp_path / "x.png", TEXTS[1], code=2).err.split())
    assert "a figure needs matplotlib, which is not installed: pip install 'regard[plot]'" in told


def test_a_trace_in_python():
    translator = regard.load("zh-en")
    trace = regard.trace(translator, TEXTS[1])
    weights = trace.cross[1].weights(head=0)
    assert weights.shape == (len(trace.target), len(trace.source)) and weights.sum(-1) == pytest.approx(1.0)
    dropped = trace.at(trace.tree.leaves("dropped")[0].number)
    assert dropped.target != trace.target and dropped.check().log_prob < 1e-4
    (one, two) = regard.trace_texts(translator, TEXTS[:2])
    assert two.text == trace.output and one.trace.check().log_prob < 1e-4
    assert regard.trace(translator, TEXTS[1], prefix="Music").output.startswith("Music")
    with pytest.raises(ImportError, match=r"to_hf\(\) needs torch, .*regard\[train\]"):
        trace.to_hf()
    with pytest.raises(ImportError, match=r"regard\.trace\.watch needs torch, .*regard\[train\]"):
        _ = regard.trace.watch


def test_models_and_info(run):
    assert "zh-en" in run("models").out and "licence" in run("models", "zh-en").out.lower()
    assert json.loads(run("info", "zh-en", "--json").out)["parameters"] > 1e6
    assert "parameters" in run("info", "zh-en").out
    assert "translate" in run("--help").out and "--beam" in run("translate", "--help").out


def test_text_is_cleaned_and_a_model_to_import_is_looked_at(run, pairs, tmp_path):
    out = tmp_path / "clean.tsv"
    run("clean", "--data", pairs, "--out", out, "--skip", "language")
    assert out.read_text(encoding="utf-8").splitlines() == pairs.read_text(encoding="utf-8").splitlines()
    (tmp_path / "config.json").write_text('{"model_type": "t5x"}', encoding="utf-8")
    assert "t5x" in run("import", tmp_path, "--out", tmp_path / "mine", code=2).err


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - CORE))
def test_every_other_command_names_its_extra(run, command):
    printed = run(command, code=2)
    assert f"regard {command} {EXTRA}" in " ".join(printed.err.split()) and "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("group", "command"), [(group, each) for group, (_, names) in GROUPS.items() for each in names]
)
def test_every_study_and_task_names_its_extra(run, group, command):
    assert f"regard {group} {command} {EXTRA}" in " ".join(run(group, command, code=2).err.split())


def test_a_model_that_only_pytorch_runs_is_named(run):
    told = " ".join(run("translate", "-m", "zh-en-recurrent", "你好", code=2).err.split())
    assert f"zh-en-recurrent: a model with family 'recurrent' and attention 'additive' {EXTRA}" in told


@pytest.mark.parametrize("scheme", ["alibi", "shaw"])
def test_a_part_that_only_pytorch_runs_is_named(run, tmp_path, scheme):
    folder = shutil.copytree(HOME / "zh-en", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["settings"]["model"]["position"] = {"name": scheme}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    told = "".join(run("translate", "-m", folder, "你好", code=2).err.split())
    assert "".join(f"a model with position {scheme!r} {EXTRA}".split()) in told


def test_a_gpu_needs_pytorch(run):
    assert f"device 'cuda' {EXTRA}" in " ".join(run("translate", "--device", "cuda", "你好", code=2).err.split())

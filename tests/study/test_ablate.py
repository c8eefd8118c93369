"""One part exchanged: what is compared, how runs share a machine, and what they sum up to."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from regard.config import ModelSettings, Settings, merge, parse_settings
from regard.data.prepare import prepare
from regard.study.ablate import (
    RESULTS,
    check_digests,
    done,
    key,
    make_jobs,
    matching_rows,
    read_rows,
    run,
    summarise,
    with_device,
    write_rows,
)
from regard.study.ablate_runs import (
    BASELINE,
    PLAN,
    SIZES,
    AblationPlan,
    AblationRow,
    digest,
    draw_reversals,
    link_text,
    make_plan,
    median_speed,
    prepare_text,
    read_plan,
    write_reversals,
)
from regard.study.repeats import run_jobs
from tests.study.jobs import note
from tests.train.tiny import TABLES, reversals, write_tsv

RECIPE = Path(__file__).parents[2] / "recipes" / "study" / "ablation.toml"
VECTORS, FEW_PAIRS = (RECIPE.with_name(f"{name}.toml") for name in ("vectors", "few-pairs"))
BASE = merge(TABLES, {"data": {"train": ["t.tsv"]}, "train": {"max_epochs": "none", "patience": "none"}})
ROTARY = {"name": "rotary", "part": "position", "set": ["model.position.name=rotary"]}


def plan(*variants, base=BASE, seeds=(0,), corpora=None):
    file = {"seeds": list(seeds), "base": base, "variant": list(variants)}
    return make_plan(file, Path("here"), corpora)


def test_a_variant_is_the_base_with_one_part_exchanged():
    table = {"name": "beside", "model": {"tie": "inputs", "position": {"name": "sinusoidal", "join": "concatenate"}}}
    made = plan(ROTARY, table, seeds=(3, 4))
    base, rotary, beside = made.variants
    assert (base.name, base.changes, made.seeds) == (BASELINE, (), (3, 4))
    assert base.settings == parse_settings(Settings, BASE)
    assert rotary.settings.model.position.name == "rotary"
    assert replace(rotary.settings, model=base.settings.model) == base.settings
    assert rotary.changes == ("model.position: sinusoidal → rotary",)
    assert beside.changes == (
        "model.tie: all → inputs",
        "model.position: sinusoidal → sinusoidal (join concatenate)",
    )


def test_texts_lie_among_the_corpora_or_beside_the_file():
    assert plan(ROTARY, corpora=Path("corpora")).variants[1].settings.data.train == ("corpora/t.tsv",)
    beside = merge(BASE, {"data": {"train": ["./t.tsv"]}})
    assert plan(ROTARY, base=beside, corpora=Path("corpora")).variants[0].settings.data.train == ("here/t.tsv",)


def test_a_variant_may_learn_from_more_text():
    more = {"name": "more", "data": {"train": ["t.tsv", "set/more.tsv"], "weights": [2.0, 0.5]}}
    variant = plan(more, corpora=Path("corpora")).variants[1]
    assert variant.settings.data.train == ("corpora/t.tsv", "corpora/set/more.tsv")
    assert variant.changes == (
        "data.train: corpora/t.tsv → corpora/t.tsv, set/more.tsv",
        "data.weights: none → 2.0, 0.5",
    )


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"set": ["model.norm=rms"]}, "a variant must have a name, got None"),
        ({"name": "x", "sets": []}, "variant 'x': unknown key 'sets': did you mean 'set'"),
        ({"name": "x"}, "variant 'x': it is the same as the base"),
        ({"name": "x", "set": ["model.norm"]}, "variant 'x': a setting must look like train.lr=3e-4, got 'model.norm'"),
        (
            {"name": "x", "set": ["model.nrom=rms"]},
            "variant 'x': unknown setting 'model.nrom': did you mean 'model.norm'",
        ),
        ({"name": "x", "set": ["model.n_heads=two"]}, "variant 'x': model.n_heads must be int, got 'two'"),
        ({"name": "x", "set": ["train.max_steps=9"]}, "same text and budget, got train.max_steps: 12 → 9"),
        ({"name": "x", "set": ["data.reverse=true"]}, "same text and budget, got data.reverse: False → True"),
        ({"name": "x", "data": {"valid": ["v2.tsv"]}}, "same text and budget, got data.valid: .* → v2.tsv"),
        ({**ROTARY, "name": BASELINE}, r"a name of its own, got \['baseline', 'baseline'\]"),
    ],
)
def test_mistakes_in_a_variant_are_named(variant, message):
    with pytest.raises(ValueError, match=message):
        plan(variant)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"seed": [0]}, "unknown key 'seed': did you mean 'seeds'"),
        ({"seeds": []}, r"seeds must be a list of whole numbers from 0 on, got \[\]"),
        ({"seeds": [0, -1]}, r"from 0 on, got \[0, -1\]"),
        ({"seeds": [1, 1]}, r"seeds must differ, got \[1, 1\]"),
        ({"variant": []}, r"1 or more variants, each with a name of its own, got \[\]"),
        ({"base": TABLES}, "base.data.train must name the text that all learn from"),
        ({"base": merge(BASE, {"train": {"max_steps": "none"}})}, "base.train.max_steps must say the budget"),
        ({"base": merge(BASE, {"train": {"patience": 3}})}, 'base.train.patience must be "none".*got 3'),
        ({"base": merge(BASE, {"train": {"max_minutes": 2}})}, 'base.train.max_minutes must be "none".*got 2'),
    ],
)
def test_mistakes_in_a_file_are_named(file, message):
    with pytest.raises(ValueError, match=message):
        make_plan({"base": BASE, "variant": [ROTARY], **file}, Path(), None)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.toml.*No such file"):
        read_plan(tmp_path / "none.toml", None)
    (tmp_path / "bad.toml").write_text("seeds = [")
    with pytest.raises(ValueError, match=r"bad\.toml"):
        read_plan(tmp_path / "bad.toml", None)


@pytest.mark.parametrize("path", [RECIPE, PLAN], ids=lambda path: path.stem)
def test_the_bundled_files_are_whole(path):
    found = read_plan(path, Path("corpora"))
    assert len(found.variants) >= 12
    assert f"regard study ablate {'--quick' if path is PLAN else 'recipes/study/ablation.toml'}" in path.read_text()
    for source in (*found.variants[0].settings.data.train, *found.variants[0].settings.data.test):
        assert all(file.startswith("corpora/") for file in source.split(","))


def test_the_recipe_exchanges_every_part_that_is_asked_for():
    found = [variant.settings for variant in read_plan(RECIPE, None).variants]
    assert {made.model.attention.name for made in found} == {"scaled_dot", "dot", "additive", "bilinear", "gaussian"}
    positions = {"none", "learned", "sinusoidal", "rotary", "t5", "alibi", "shaw"}
    assert {made.model.position.name for made in found} == positions
    assert {made.model.norm for made in found} == {"layer", "rms", "batch"}
    assert {made.model.norm_place for made in found} == {"before", "after"}
    assert {made.model.n_heads for made in found} == {1, 2, 4, 8, 16}
    assert any(made.model.position.options.get("join") == "concatenate" for made in found)


def test_vectors_have_a_recipe_of_their_own_with_the_same_base():
    found = [variant.settings for variant in read_plan(VECTORS, None).variants]
    assert [made.train.vectors for made in found] == ["random", "skip_gram", "cbow"]
    assert found[0] == read_plan(RECIPE, None).variants[0].settings
    assert "regard study ablate recipes/study/vectors.toml" in VECTORS.read_text()


def test_few_pairs_have_a_recipe_that_exchanges_the_text_too():
    found = read_plan(FEW_PAIRS, Path("corpora"))
    assert found.title == "What makes few pairs go further" and not found.same_data
    assert not any(variant.settings.data.test for variant in found.variants)
    assert "regard study ablate recipes/study/few-pairs.toml" in FEW_PAIRS.read_text()
    assert read_plan(RECIPE, None).same_data and read_plan(RECIPE, None).title == "What each part is worth"


def test_losses_compare_where_pieces_are_the_same():
    others = ({"text": {"vocab_size": 60}}, {"data": {"train": ["u.tsv"]}}, {"text": {"sampling": 0.5}})
    made = plan(*({"name": str(at), **tables} for at, tables in enumerate(others)))
    found = summarise(made, [row(), *(row(str(at), bleu=11.0, loss=0.5) for at in range(3))]).lines
    assert [line.loss_gain for line in found] == [None, None, None, -0.5]
    assert [line.gain for line in found] == [None, 1.0, 1.0, 1.0]


def row(variant="baseline", seed=0, bleu=10.0, loss=1.0, **more):
    about = {"part": "", "changes": [], "digest": "d"}
    numbers = {"parameters": 7, "tokens_per_second": 100.0, "bleu_valid": bleu, "bleu_test": bleu, "loss": loss}
    return AblationRow(variant, seed=seed, **{**about, **numbers, "perplexity": 2.0, **more})


def test_means_spreads_and_differences():
    made = plan(ROTARY, {"name": "x", "set": ["model.norm=rms"]}, seeds=(0, 1))
    rows = [row(seed=0, bleu=10.0), row(seed=1, bleu=12.0, loss=2.0)]
    rows += [row("rotary", 0, 40.0), row("rotary", 1, 41.0), row("x", 0, 11.5), row("x", 1, 9.5)]
    found = summarise(made, rows)
    base, rotary, x = found.lines
    assert (base.quality.mean, base.quality.std, base.gain, base.differs) == (11.0, pytest.approx(2**0.5), None, None)
    assert (rotary.quality.mean, rotary.gain, rotary.differs) == (40.5, 29.5, True)
    assert (x.gain, x.differs) == (-0.5, False)
    assert (rotary.loss_gain, rotary.seeds, found.missing, found.measured_on) == (-0.5, [0, 1], 0, "test")


def test_failed_and_missing_runs_are_told_and_those_of_other_plans_left_out():
    made = plan(ROTARY, seeds=(0, 1))
    rows = [row(seed=0), row(seed=5), row("old"), replace(row("rotary"), error="ValueError: no", bleu_test=None)]
    found = summarise(made, rows)
    base, rotary = found.lines
    assert base.seeds == [0]
    assert (rotary.quality, rotary.gain, rotary.errors) == (None, None, ["seed 0: ValueError: no"])
    assert found.missing == 3


def test_without_a_test_text_validation_is_compared():
    found = summarise(plan(ROTARY), [row(bleu_test=None, bleu_valid=5.0)])
    assert (found.measured_on, found.lines[0].quality.mean) == ("validation", 5.0)


def test_runs_go_seed_by_seed_and_never_without_the_baseline(tmp_path):
    made = plan(ROTARY, {"name": "x y", "set": ["model.norm=rms"]}, seeds=(0, 1))
    jobs = make_jobs(made, tmp_path, 3, [])
    order = [(job.variant.name, job.seed) for job in jobs]
    assert order == [(name, seed) for seed in (0, 1) for name in ("baseline", "rotary", "x y")]
    assert len({job.folder for job in jobs}) == 6
    assert [job.settings.train.seed for job in jobs] == [0, 0, 0, 1, 1, 1]
    assert {job.variant.name for job in make_jobs(made, tmp_path, 3, ["rotary"])} == {"baseline", "rotary"}
    with pytest.raises(ValueError, match="unknown variant 'rotari': did you mean 'rotary'"):
        make_jobs(made, tmp_path, 3, ["rotari"])


def test_finished_runs_are_done_failed_ones_are_not_and_other_settings_are_refused(tmp_path):
    made = plan(ROTARY)
    base, rotary = make_jobs(made, tmp_path, 1, [])
    good = row(digest=digest(base.settings))
    rows = {key(each): each for each in (good, replace(row("rotary"), error="no"))}
    assert done(base, rows)
    assert not done(rotary, rows)
    check_digests([base, rotary], rows)
    with pytest.raises(ValueError, match=r"'baseline' was run with other settings here \(d, asked for are"):
        check_digests([base], {key(good): row()})


def test_results_are_read_as_they_were_written(tmp_path):
    rows = [row(curve=[{"step": 4, "loss": 1.0}]), replace(row("rotary"), error="no")]
    write_rows(tmp_path, plan(ROTARY), rows)
    assert read_rows(tmp_path) == rows
    assert read_rows(tmp_path / "none") == []
    (tmp_path / RESULTS).write_text('{"rows": [{"variant": 1}]}')
    with pytest.raises(ValueError, match="no results of an ablation"):
        read_rows(tmp_path)


def test_the_baseline_is_read_first_whichever_run_ended_first(tmp_path):
    write_rows(tmp_path, plan(ROTARY), [row("rotary"), row("x"), row(), row("rotary", 1), row(seed=1)])
    assert [key(each) for each in read_rows(tmp_path)][:3] == [("baseline", 0), ("baseline", 1), ("rotary", 0)]


def test_kept_results_are_shown_where_they_are_of_the_same_settings(tmp_path):
    made = with_device(plan(ROTARY), "cuda", 0)  # which need not be here
    jobs = make_jobs(made, tmp_path, 1, [])
    rows = [row(job.variant.name, digest=digest(job.settings)) for job in jobs]
    with pytest.raises(ValueError, match=rf"{tmp_path} holds no results\.json with a run in it"):
        matching_rows(made, tmp_path)
    write_rows(tmp_path, made, rows)
    assert matching_rows(made, tmp_path) == rows
    with pytest.raises(ValueError, match=r"'baseline' was run with other settings.*the same --corpora and"):
        matching_rows(plan(ROTARY), tmp_path)


def test_device_and_seeds_are_the_same_for_all():
    made = with_device(plan(ROTARY, seeds=(0, 2)), "cpu", 10)
    assert made.seeds == (10, 12)
    assert {variant.settings.train.device for variant in made.variants} == {"cpu"}


def test_the_speed_is_the_median_without_the_beginning(tmp_path):
    path = tmp_path / "metrics.jsonl"
    told = [{"step": 1, "tokens_per_second": 1.0}, {"step": 1, "valid_loss": 2.0}]
    told += [{"step": n, "tokens_per_second": speed} for n, speed in ((2, 10.0), (3, 30.0), (4, 20.0))]
    path.write_text("".join(json.dumps(each) + "\n" for each in told))
    assert median_speed(path) == 20.0
    path.write_text(json.dumps(told[0]) + "\n")
    assert median_speed(path) == 1.0


def test_text_is_prepared_once_and_every_seed_takes_it(tmp_path):
    text = write_tsv(tmp_path / "t.tsv", reversals(80, seed=1))
    base = merge(BASE, {"data": {"train": [str(text)]}})
    made = plan(ROTARY, {"name": "pieces", "set": ["text.kind=bpe"]}, base=base, seeds=(3,))
    prepare_text(made.variants[0].settings, tmp_path)
    said = []
    for job in make_jobs(made, tmp_path, 1, []):
        job.folder.mkdir(parents=True)
        link_text(job, made.variants[0].settings)
        prepare(job.settings.data, job.settings.text, job.folder, said.append, job.settings.train.seed)
        said.append(job.variant.name)
    used = [line for line in said if "used again" in line]
    assert len(used) == 2
    assert said.index("pieces") > said.index("rotary") > said.index("baseline")
    assert not any("used again" in line for line in said[said.index("rotary") + 1 :])


def test_reversals_are_made_once_and_share_no_string(tmp_path):
    write_reversals(tmp_path / "text")
    files = {name: (tmp_path / "text" / f"{name}.tsv").read_text().splitlines() for name in SIZES}
    assert {name: len(lines) for name, lines in files.items()} == SIZES
    assert len({line for lines in files.values() for line in lines}) == sum(SIZES.values())
    for line in files["test"]:
        src, tgt = line.split("\t")
        assert src.split() == tgt.split()[::-1]
    before = (tmp_path / "text" / "train.tsv").stat().st_mtime_ns
    write_reversals(tmp_path / "text")
    assert (tmp_path / "text" / "train.tsv").stat().st_mtime_ns == before
    assert draw_reversals(5, 4, 6, seed=1) == draw_reversals(5, 4, 6, seed=1) != draw_reversals(5, 4, 6, seed=2)


def test_jobs_fail_for_themselves_and_are_stopped_with_their_listener(tmp_path):
    jobs = [(tmp_path / str(n), what) for n, what in enumerate(("fail", "die", "good", "wait"))]
    ended = {}
    crew = run_jobs(note, jobs, 4)
    for (path, _), code in crew:
        ended[path.name] = code
        if len(ended) == 3:
            while not jobs[3][0].exists():
                time.sleep(0.05)
            crew.close()
    assert ended == {"0": 3, "1": -signal.SIGKILL, "2": 0}
    assert jobs[2][0].read_text() == "good"
    assert jobs[3][0].read_text() == "stopped"
    with pytest.raises(ValueError, match="got 0"):
        next(run_jobs(note, jobs, 0))


@pytest.fixture(scope="module")
def ablated(tmp_path_factory):
    """Gives the folder of a small ablation that has run, its plan, and its rows."""
    folder = tmp_path_factory.mktemp("ablated")
    text = write_tsv(folder / "t.tsv", reversals(80, seed=1))
    test = write_tsv(folder / "test.tsv", reversals(10, seed=2))
    base = merge(BASE, {"data": {"train": [str(text)], "test": [str(test)]}, "train": {"max_steps": 4}})
    meaningless = {"name": "no pair", "set": ["model.position.name=rotary", "model.attention.name=additive"]}
    made = plan(meaningless, base=base)
    return folder / "study", made, list(run(made, folder / "study", 2, []))


def test_a_run_brings_its_row_and_a_meaningless_variant_its_reason(ablated):
    folder, made, rows = ablated
    by_name = {each.variant: each for each in rows}
    assert set(by_name) == {"baseline", "no pair"}
    assert "'rotary' has no meaning with 'additive'" in by_name["no pair"].error
    base = by_name["baseline"]
    assert (base.error, base.seed, base.beside, base.reason) == (None, 0, 2, "all 4 steps are done")
    assert base.perplexity == pytest.approx(2.718281828**base.loss)
    assert [found["step"] for found in base.curve] == [4]
    assert base.tokens_per_second > 0 < base.seconds
    assert base.signature["settings"] == base.digest
    assert base.bleu_test >= 0
    assert sorted(map(key, read_rows(folder))) == sorted(map(key, rows))
    left = {path.name for path in next((folder / "runs").glob("baseline*")).iterdir()}
    assert "model" in left
    assert not left & {"checkpoints", "data"}
    assert [line.variant for line in summarise(made, rows).lines] == ["baseline", "no pair"]


def test_what_is_finished_is_not_run_again(ablated):
    folder, made, _ = ablated
    without = AblationPlan(made.seeds, made.variants[:1])
    before = (folder / RESULTS).read_bytes()
    assert list(run(without, folder, 2, [])) == []
    assert (folder / RESULTS).read_bytes() == before


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on(tmp_path):
    """Half of the steps are taken by hand in the run's own folder; the study takes the rest."""
    from regard.train.trainer import train

    text = write_tsv(tmp_path / "t.tsv", reversals(80, seed=1))
    made = plan(ROTARY, base=merge(BASE, {"data": {"train": [str(text)]}}))
    (job, *_) = make_jobs(made, tmp_path / "study", 1, [])
    half = replace(job.settings, train=replace(job.settings.train, max_steps=8))
    train(half, job.folder, lambda progress: None)
    rows = list(run(made, tmp_path / "study", 1, []))
    assert rows[0].reason == "all 12 steps are done"
    assert "resuming from step 8" in (job.folder / "log.txt").read_text()


def test_results_of_earlier_versions_are_recognised_by_their_settings():
    assert digest(Settings()) == "0bafd1611c70"  # as it was when the first results were stored
    assert digest(replace(Settings(), decode=replace(Settings().decode, split="overlong"))) != digest(Settings())
    plain, normalised = (ModelSettings(family="recurrent", state_norm=norm) for norm in ("none", "layer"))
    assert digest(replace(Settings(), model=plain)) != digest(replace(Settings(), model=normalised))

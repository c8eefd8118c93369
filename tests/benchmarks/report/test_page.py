"""The page of measurements, from small made-up result files."""

import json
from pathlib import Path

import pytest

from benchmarks.report import BarPanel, LinePanel
from benchmarks.report.page import Result, make_chapters, page_text, read_results, write_page
from benchmarks.suites import SCRIPTS, SUITES

ROOT = Path(__file__).parents[3]
NO_SCRIPTS = Path("no-scripts")
SIGN = {"regard": "9.9", "machine": "Toaster", "threads": 3, "commit": "abc"}


def layer(version, length, ms, share=None, **more):
    given = {"kind": "causal", "length": length, "version": version, "ms": ms, **more}
    return given if share is None else {**given, "of_limit": share}


def timed(ms, low=None, high=None):
    return {"ms": ms} if low is None else {"ms": ms, "low": low, "high": high}


RECORDS = {
    ("attention", "cpu"): {
        "signature": SIGN,
        "additive": {"materialised": {"ms": 50.0, "extra_mib": 600.0}, "blocks": {"ms": 70.0, "extra_mib": 6.0}},
        "layers": [
            layer("regard", 64, 20.0, 0.5, low_ms=19.0, high_ms=23.0),
            layer("regard", 128, 40.0, 0.5),
            layer("regard", 256, 80.0, 0.5),
            layer("peer", 64, 10.0, 1.0),
            layer("peer", 128, 50.0, 0.4),
        ],
    },
    ("decode", "cuda"): {
        "signature": SIGN,
        "tables": [
            {
                "shape": "base", "batch": 1, "beam": 1, "tokens": 25, "limit_s": 0.004,
                "rows": [
                    {"system": "Marian bfloat16", "s": 0.1, "low_s": 0.09, "high_s": 0.12, "agree": 0.9},
                    {"system": "regard bfloat16", "s": 0.008, "low_s": 0.007, "high_s": 0.009, "agree": 1.0},
                ],
            },
            {
                "shape": "base", "batch": 8, "beam": 5, "tokens": 200, "limit_s": 0.01,
                "rows": [
                    {"system": "Marian bfloat16", "s": 0.02},
                    {"system": "regard bfloat16", "s": 0.04},
                    {"system": "regard float32", "s": 0.03},
                ],
            },
        ],
        "file": [{"precision": "float32", "way": "slots", "s": [3.0, 2.0], "same": 0.987, "bleu": None}],
    },
    ("train", "cpu"): {
        "signature": SIGN,
        "tables": [
            {
                "shape": "small", "batch_tokens": 4096, "tokens": 1000, "flops": 4e9, "flops_per_s": 8e9,
                "rows": [
                    {"system": "regard", "tokens_per_s": 900.0, "of_limit": 0.45, "peak_bytes": None},
                    {"system": "peer", "tokens_per_s": 1200.0, "of_limit": 0.6, "peak_bytes": 2**31},
                ],
            }
        ],
    },
    ("growth", "cpu"): {
        "signature": SIGN,
        "curves": [
            {
                "path": "fused", "axis": "length",
                "sizes": [64, 128, 256], "ms": [1.0, 4.0, 16.0], "extra_mib": [2.0, 4.0, 8.0],
            },
            {
                "path": "slow", "axis": "length", "sizes": [64], "ms": [9.0], "extra_mib": [None],
                "stopped": "128: about 9 s expected, 1 s are the limit",
            },
        ],
    },
    ("kernels", "cuda"): {
        "signature": SIGN,
        "rates": {"tanh": {"f32": 4e12}, "product": 7e14},
        "limits": {"t5": {"forward": 0.1, "both": 0.3}},
        "t5": {
            "no bias": {"forward": timed(0.1), "both": timed(0.5), "extra_mib": 1.0},
            "kernel": {"forward": timed(0.2), "both": timed(0.6, 0.5, 0.7), "extra_mib": 2.0},
            "FlexAttention": {"failed": "OutOfResources: shared memory"},
            "dense bias": {"forward": timed(0.15), "both": timed(1.2)},
        },
        "something new": {"a": 1},
        "growth": {"t5": [{"length": 64 * 2**at, "ms": 4.0**at, "extra_mib": 2.0**at} for at in range(4)]},
    },
    ("serve", "cpu"): {
        "compared": [
            {"beam": 1, "ceiling": 200.0, "together": {"per_second": 100.0, "lost": 0}, "alone": {"per_second": 50.0}}
        ],
        "memory_mib": [10.0, None, 12.0],
        "long_run": {"requests": 1000, "lost": 0, "wrong": 0},
    },
    ("view", "cpu"): {
        "rows": [
            {"tokens": 20, "viewer": "regard, words", "bytes": 1e6, "make_seconds": 0.2, "draw_seconds": 0.3},
            {"tokens": 20, "viewer": "peer", "bytes": 9e6, "make_seconds": 0.1, "draw_seconds": None},
        ]
    },
    ("write", "cpu"): {
        "small": {
            "tokens": 10,
            "seconds": {
                "with the cache": {"median": 0.1, "low": 0.09, "high": 0.11},
                "without": {"median": 0.4, "low": 0.4, "high": 0.5},
                "reading the weights once": {"median": 0.005, "low": 0.005, "high": 0.005},
            },
        }
    },
    ("trace", "cpu"): {"seconds": {"open": {"median": 0.001, "low": 0.0009, "high": 0.0012}}},
}  # fmt: skip


def page_of(*keys):
    results = [Result(*key, RECORDS[key]) for key in keys]
    return page_text(make_chapters(results, NO_SCRIPTS), "performance", "python -m benchmarks --show")


def section_of(*key):
    return make_chapters([Result(*key, RECORDS[key])], NO_SCRIPTS)[0].section


def test_layers_stand_beside_peers_with_the_limit_and_the_best_in_bold_whoever_it_is():
    page = page_of(("attention", "cpu"))
    assert "| version | 64 tokens | 128 tokens | 256 tokens |" in page
    assert "| regard | 20 (19 … 23) · 50 % | **40 · 50 %** | 80 · 50 % |" in page
    assert "| peer | **10 · 100 %** | 50 · 40 % | – |" in page
    assert "| the limit | 10 | 20 | 40 |" in page
    assert "| materialised | **50** | 600 |" in page
    assert "| blocks | 70 | **6** |" in page
    assert "Signature: regard 9.9, machine Toaster, threads 3, commit abc. File: `attention-cpu.json`." in page


def test_the_page_says_where_others_are_ahead():
    page = page_of(("attention", "cpu"), ("train", "cpu"))
    assert "In 1 of 3 comparisons with the best of the others Regard is ahead." in page
    behind = [line for line in page.splitlines() if line.endswith("behind")]
    assert behind == [
        "- layer, causal, sequences of 64 tokens, ms, on a CPU: peer 10 · 100 %, ours 20 (19 … 23) · 50 %, "
        "2.0 times behind",
        "- training, small shape, batches of 4,096 slots, tokens/s, on a CPU: peer 1,200 · 60 %, ours 900 · 45 %, "
        "33.3 % behind",
    ]
    assert "Where others are ahead" not in page_of(("write", "cpu"))


def test_decoders_wait_in_milliseconds_or_write_in_tokens_a_second():
    page = page_of(("decode", "cuda"))
    assert "| system | batch 1, greedy, ms per sentence | batch 8, beam 5, tokens/s |" in page
    assert "| Marian bfloat16 | 100 (90 … 120) · 4 % | **10,000 · 50 %** |" in page
    assert "| regard bfloat16 | **8 (7 … 9) · 50 %** | 5,000 · 25 % |" in page
    assert "| regard float32 | – | 6,667 · 33 % |" in page  # judged by itself
    assert "| the limit | 4 | 20,000 |" in page
    assert "| regard float32, slots | 3 | 2 | 98.7 % | – |" in page
    assert "In 1 of 2 comparisons" in page
    assert "at least in each table: Marian bfloat16 90 %, regard bfloat16 100 %." in page


def test_training_has_the_limit_of_the_products():
    page = page_of(("train", "cpu"))
    assert "| the limit | 2,000 |" in page
    assert "| peer | **1,200 · 60 %** | – | 2.0 | – | – |" in page
    (panel,) = section_of("train", "cpu").panels
    assert isinstance(panel, BarPanel)
    assert panel.limit == 2000


def test_growth_has_powers_that_are_fitted_where_the_file_names_none():
    page = page_of(("growth", "cpu"))
    assert "| fused | 1 · 2 | 4 · 4 | 16 · 8 | n^2.00 | n^1.00 |" in page
    assert "| slow | 9 | – | – | – | – |" in page
    assert "- slow stopped before length 128: about 9 s expected, 1 s are the limit." in page
    times, memory = section_of("growth", "cpu").panels
    assert isinstance(times, LinePanel) and isinstance(memory, LinePanel)
    assert [each.exponent for each in (*times.lines, *memory.lines)] == [pytest.approx(2), None, pytest.approx(1), None]


def test_kernels_show_what_did_not_run_and_take_no_harm_from_what_they_do_not_know():
    page = page_of(("kernels", "cuda"))
    assert "| kernel | 0.2 | 0.6 (0.5 … 0.7) | 50 % | 2 |" in page
    assert "| FlexAttention | did not run | – | – | – |" in page
    assert "- t5, FlexAttention: OutOfResources: shared memory" in page
    assert "- Rates measured in the same run: tanh f32 4 T/s, product 700 T/s." in page
    assert "kernel, t5, forward, ms, on a GPU: dense bias 0.15, ours 0.2, 33.3 % behind" in page
    assert "In 1 of 2 comparisons" in page  # plain attention computes less, and is no rival
    assert "something new" not in page
    lines = [panel for panel in section_of("kernels", "cuda").panels if isinstance(panel, LinePanel)]
    assert [panel.lines[0].exponent for panel in lines] == [pytest.approx(2), pytest.approx(1)]


def test_the_other_suites_have_their_tables():
    page = page_of(("serve", "cpu"), ("view", "cpu"), ("write", "cpu"), ("trace", "cpu"))
    assert "| batched | **100.0** | 50 % | – | – | – | – | 0 | – |" in page
    assert "over 1,000 requests: 10 MiB before, 12 after, at most 12; 0 lost, 0 wrong." in page
    assert "| peer | 9 | **0.1** | – |" in page
    assert "- peer drew nothing at 20 tokens." in page
    assert "| with the cache | **100 (90 … 110)** | **100** | 50 % |" in page
    assert "| the limit | 50 | 200 |  |" in page
    assert "| open | 1 (0.9 … 1.2) |" in page
    assert "Signature: none." in page


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.result_file)
@pytest.mark.parametrize("record", [{}, {"signature": {}}, {"tables": [{}], "layers": [{}], "rows": [3], "curves": 7}])
def test_no_file_of_another_form_stops_the_page(suite, record, tmp_path):
    (chapter,) = make_chapters([Result(suite.name, suite.device, record)], NO_SCRIPTS)
    write_page([chapter], tmp_path / "page.md", "python -m benchmarks")
    assert chapter.title in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_pictures_lie_beside_the_page(tmp_path):
    results = [Result(*key, record) for key, record in RECORDS.items()]
    write_page(make_chapters(results, NO_SCRIPTS), tmp_path / "page.md", "python -m benchmarks")
    named = {line.partition("(images/")[2][:-1] for line in (tmp_path / "page.md").read_text("utf-8").splitlines()}
    drawn = {path.name for path in (tmp_path / "images").iterdir()}
    assert drawn == named - {""}
    assert {"page-attention-cpu.png", "page-kernels-cuda.png", "page-growth-cpu.png"} <= drawn
    assert "page-trace-cpu.png" not in drawn


def test_what_a_script_says_stands_once(tmp_path):
    (tmp_path / "attention.py").write_text('"""How fast?\n\nCeiling: the\nrate.\n"""\n')
    results = [Result("attention", device, RECORDS["attention", "cpu"]) for device in ("cpu", "cuda")]
    page = page_text(make_chapters(results, tmp_path), "x", "python -m benchmarks")
    assert page.count("*How fast?*\n\nCeiling: the rate.\n\n") == 1


def test_broken_files_are_named(tmp_path):
    (tmp_path / "attention-cpu.json").write_text("{")
    (tmp_path / "train-cpu.json").write_text("[1]")
    (tmp_path / "trace-cpu.json").write_text(json.dumps(RECORDS["trace", "cpu"]))
    found, broken = read_results(tmp_path)
    assert [result.file for result in found] == ["trace-cpu.json"]
    assert [line.partition(":")[0] for line in broken] == ["attention-cpu.json", "train-cpu.json"]
    assert "got list" in broken[1]


def test_the_page_in_the_documentation_is_written_from_the_kept_results():
    found, broken = read_results(SCRIPTS / "results")
    assert not broken
    chapters = make_chapters(found, SCRIPTS)
    for chapter in chapters:
        assert chapter.section.tables, chapter.section.notes
    command = "python -m benchmarks --show --doc docs/performance.md"
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert page == page_text(chapters, "performance", command), f"run: {command}"

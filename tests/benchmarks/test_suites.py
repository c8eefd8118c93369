"""The table of suites: what each needs, and which options its script takes."""

from dataclasses import replace

from benchmarks.suites import SCRIPTS, SUITES, Suite, choose_suites, docstring_paragraphs, unmet_requirement


def test_needs_are_named(tmp_path):
    suite = Suite("x", "cpu", "x.py")
    (tmp_path / "x.py").touch()
    assert unmet_requirement(suite, tmp_path) is None
    assert unmet_requirement(replace(suite, script="y.py"), tmp_path) == f"y.py is missing from {tmp_path.name}/"
    assert "no_such_thing is not installed" in (
        unmet_requirement(replace(suite, modules=("no_such_thing",)), tmp_path) or ""
    )
    programs = (("no-such-program", "nor-this"),)
    assert (
        unmet_requirement(replace(suite, programs=programs), tmp_path) == "no-such-program or nor-this is not installed"
    )
    assert "zz-yy" in (unmet_requirement(replace(suite, model="zz-yy"), tmp_path) or "")


def test_every_suite_of_this_copy_takes_the_options_that_it_is_given(tmp_path):
    """As its own parser names them; a suite that is not here yet is nobody's mistake."""
    for suite in SUITES:
        path = SCRIPTS / suite.script
        if path.exists():
            text = path.read_text(encoding="utf-8")
            assert docstring_paragraphs(path)
            for option in (each for each in suite.command_line(True, tmp_path) if each.startswith("--")):
                assert f'"{option}"' in text, f"{suite.script} knows no {option}"


def test_each_device_has_its_suites():
    on_gpu = ["attention", "growth", "kernels", "decode", "train", "serve"]
    assert [suite.name for suite in choose_suites([], "cuda")] == on_gpu
    assert [suite.script for suite in choose_suites(["decode"], "cuda")] == ["decode_gpu.py"]
    assert {suite.result_file for suite in SUITES if suite.device == "cpu"} >= {"view-cpu.json", "write-cpu.json"}
    assert len({suite.result_file for suite in SUITES}) == len(SUITES)

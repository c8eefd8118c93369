"""The public names of the package."""

import sys

import pytest

import regard

LIGHT = {"load", "Translator", "Settings", "HeadsSettings", "PartSettings"}
LIGHT |= {"Glossary", "translate_marked"}
LIGHT |= {"Trace", "TracedTranslation", "load_trace", "save_html", "trace_texts"}
ROOMS = {"trace"}  # which are modules


def test_the_names_of_the_package_are_listed():
    assert set(regard.__all__) <= set(dir(regard)) and sys.modules.get("torch") is None


@pytest.mark.parametrize("name", sorted(LIGHT))
def test_these_names_need_no_pytorch(name):
    assert getattr(regard, name).__name__ == name


@pytest.mark.parametrize("name", sorted(set(regard.__all__) - LIGHT - ROOMS))
def test_every_other_name_names_its_extra(name):
    with pytest.raises(ImportError, match=rf"regard\.{name} needs torch, .*: pip install 'regard\[train\]'"):
        getattr(regard, name)


def test_the_modules_of_a_model_name_the_extra():
    with pytest.raises(ImportError, match=r"zh-en: the view into a model needs torch, .*regard\[train\]"):
        _ = regard.load("zh-en").model

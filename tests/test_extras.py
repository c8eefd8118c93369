"""The extras: each package that the code names is in that extra of pyproject.toml, and the core needs none of them."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from regard.data.files import open_bytes
from regard.extras import EXTRAS

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {"sklearn": "scikit-learn", "huggingface_hub": "huggingface-hub"}  # of modules with another name


def names(requirements):
    return {re.split(r"[\[<>=!~; ]", each)[0] for each in requirements}


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_an_extra_installs_the_packages_that_it_is_named_for(module, extra):
    distribution = DISTRIBUTIONS.get(module, module)
    assert distribution in names(PROJECT["optional-dependencies"][extra])
    assert distribution not in names(PROJECT["dependencies"])


def test_what_an_extra_installs_beside_is_an_extra_too():
    extras = PROJECT["optional-dependencies"]
    within = re.findall(r"regard\[(.+?)\]", " ".join(each for extra in extras.values() for each in extra))
    assert {name for some in within for name in some.split(",")} <= extras.keys()
    assert "regard[" not in "".join(PROJECT["dependencies"])


def test_a_zst_file_without_its_package_names_the_extra(tmp_path, monkeypatch):
    file = tmp_path / "pairs.tsv.zst"
    file.write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with (
        pytest.raises(ValueError, match=r"reading .zst needs zstandard, .*'regard\[train\]'"),
        open_bytes(str(file)) as stream,
    ):
        stream.read()

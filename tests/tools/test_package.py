"""The built package: an sdist and a wheel hold the page, and nothing is built without it."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("index.html", "view.html", "widget.js")


@pytest.fixture
def tree(tmp_path):
    """The sources of a package without its models, which are large."""
    models = shutil.ignore_patterns("zh-en*", "en-zh*", "page", "__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "tree" / "src", ignore=models)
    for name in ("pyproject.toml", "README.md", "LICENSE", "tools"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / "tree" / name)
    return tmp_path / "tree"


def build(tree, *targets):
    """Builds without Node, wherever it is installed."""
    command = [sys.executable, "-m", "hatchling", "build", *(word for target in targets for word in ("-t", target))]
    return subprocess.run(
        command, cwd=tree, env={**os.environ, "PATH": ""}, capture_output=True, text=True, check=False
    )


def test_the_page_is_in_the_sdist_and_in_a_wheel_made_from_it(tree, tmp_path):
    page = tree / "src" / "regard" / "serve" / "page"
    page.mkdir()
    for name in FILES:
        (page / name).write_text(name)
    made = build(tree, "sdist")
    assert made.returncode == 0, made.stderr
    with tarfile.open(next((tree / "dist").glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    made = build(unpacked, "wheel")
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(next((unpacked / "dist").glob("*.whl"))) as wheel:
        assert {f"regard/serve/page/{name}" for name in FILES} <= set(wheel.namelist())


@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_without_the_page_and_without_node_nothing_is_built(tree, target):
    made = build(tree, target)
    assert made.returncode != 0 and "the page must be built before it is packaged" in made.stderr
    assert not list((tree / "dist").glob("*")) if (tree / "dist").exists() else True

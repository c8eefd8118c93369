"""The built package: what sdists and wheels hold, what their metadata say, and that no part of them is missing."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

from regard.native.libraries import LEVELS, sources_key

ROOT = Path(__file__).parents[2]
PAGE = {"index.html", "licenses.md", "view.html", "widget.js"}
MACHINE = platform.machine()
# As its card spells a licence, and as SPDX does.
LICENCES = {
    "Apache-2.0": "Apache-2.0",
    "CC BY 2.0 FR": "LicenseRef-CC-BY-2.0-FR",
    "CC BY 4.0": "CC-BY-4.0",
    "CC BY-SA 3.0": "CC-BY-SA-3.0",
    "CC BY-SA 4.0": "CC-BY-SA-4.0",
    "CC0": "CC0-1.0",
    "GPL-2+": "GPL-2.0-or-later",
    "GPL-3": "GPL-3.0-only",
    "MPL-2.0": "MPL-2.0",
    "PSF": "PSF-2.0",
    "free licences, mostly GPL and LGPL": "LicenseRef-Debian-12-main",
    "public domain": "LicenseRef-Public-Domain",
}
COMPILER = """#!/bin/sh
# Compiles nothing, at once.
[ "$1" = -dumpmachine ] && { echo MACHINE-linux-gnu; exit; }
while [ "$1" != -o ]; do shift; done
echo GLIBC_2.3.4 GLIBC_2.17 >"$2"
"""


@pytest.fixture
def tree(tmp_path):
    """The sources of a package without what is built, and with the cards alone of its models, which are large."""
    built = shutil.ignore_patterns("*.safetensors", "tokenizer*", "page", "lib", "__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "tree" / "src", ignore=built)
    for name in ("pyproject.toml", "README.md", "LICENSE", "tools"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / "tree" / name)
    return tmp_path / "tree"


@pytest.fixture
def page(tree):
    """A page that was built, so that nothing but the libraries is missing."""
    folder = tree / "src" / "regard" / "serve" / "page"
    folder.mkdir()
    for name in PAGE:
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def compiler(tmp_path):
    """Makes a compiler for a kind of machine; a build without it finds none, and no Node either."""

    def make(machine):
        path = tmp_path / f"{machine}-g++"
        path.write_text(COMPILER.replace("MACHINE", machine))
        path.chmod(0o755)
        return str(path)

    return make


def build(tree, target, compiler=None):
    environment = {**os.environ, "PATH": "", "CXX": compiler or ""}
    if target == "editable":
        command = [sys.executable, "-c", "from hatchling.build import build_editable\nbuild_editable('dist')"]
        (tree / "dist").mkdir(exist_ok=True)
    else:
        command = [sys.executable, "-m", "hatchling", "build", "-t", target]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def wheel_of(tree):
    (path,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return path.name, set(wheel.namelist()), BytesParser().parsebytes(wheel.read(metadata))


def libraries(machine):
    return {f"regard/native/lib/{machine}/{level}-{sources_key()}.so" for level in LEVELS[machine]}


def test_the_page_and_the_sources_are_in_the_sdist_and_both_in_a_wheel_made_from_it(tree, page, compiler, tmp_path):
    made = build(tree, "sdist")
    assert made.returncode == 0, made.stderr
    with tarfile.open(next((tree / "dist").glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    assert not list(unpacked.rglob("*.so"))
    made = build(unpacked, "wheel", compiler("x86_64"))
    assert made.returncode == 0, made.stderr
    name, files, _ = wheel_of(unpacked)
    assert name.endswith("-py3-none-manylinux_2_17_x86_64.whl")
    assert {f"regard/serve/page/{name}" for name in PAGE} | {"regard/native/build.py", "regard/native/simd.h"} <= files
    assert {file for file in files if file.endswith(".so")} == libraries("x86_64")


def test_a_wheel_holds_the_libraries_of_its_own_machine_and_no_old_ones(tree, page, compiler):
    assert build(tree, "wheel", compiler("x86_64")).returncode == 0
    shutil.rmtree(tree / "dist")
    (tree / "src" / "regard" / "native" / "lib" / "aarch64").mkdir()
    (tree / "src" / "regard" / "native" / "lib" / "aarch64" / "neon-of-old-sources.so").touch()
    made = build(tree, "wheel", compiler("aarch64"))
    assert made.returncode == 0, made.stderr
    name, files, _ = wheel_of(tree)
    assert name.endswith("-py3-none-manylinux_2_17_aarch64.whl")
    assert {file for file in files if file.endswith(".so")} == libraries("aarch64")


@pytest.mark.skipif(MACHINE not in LEVELS, reason="no libraries are built for this machine")
def test_libraries_that_are_there_need_no_compiler(tree, page, compiler):
    assert build(tree, "wheel", compiler(MACHINE)).returncode == 0
    shutil.rmtree(tree / "dist")
    made = build(tree, "wheel")
    assert made.returncode == 0, made.stderr
    assert libraries(MACHINE) <= wheel_of(tree)[1]


@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_without_the_page_and_without_node_nothing_is_built(tree, target):
    made = build(tree, target)
    assert made.returncode != 0 and "the page must be built before it is packaged" in made.stderr
    assert not list((tree / "dist").glob("*")) if (tree / "dist").exists() else True


@pytest.mark.skipif(MACHINE not in LEVELS, reason="no libraries are built for this machine")
@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        (None, "no C++ compiler was found: c++, g++ or clang++"),
        ("no-such-g++", "CXX must name a compiler, got 'no-such-g++'"),
        (sys.executable, "did not compile"),
    ],
)
def test_without_libraries_and_without_a_compiler_no_wheel_is_built(tree, page, compiler, reason):
    made = build(tree, "wheel", compiler)
    last = made.stderr.strip().splitlines()
    assert made.returncode != 0 and "Traceback" not in made.stderr and reason in made.stderr, made.stderr
    assert last[0].startswith("src/regard/native: the C++ libraries must be built before they are packaged")
    assert not list((tree / "dist").glob("*.whl"))


@pytest.mark.parametrize("there", [True, False])
def test_an_editable_installation_goes_on_without_a_compiler_and_says_so(tree, compiler, there):
    made = build(tree, "editable", compiler(MACHINE) if there else None)
    assert made.returncode == 0, made.stderr
    _, files, _ = wheel_of(tree)
    assert not [file for file in files if file.endswith(".so")]
    if MACHINE in LEVELS:
        assert ("no C++ compiler was found" in made.stdout + made.stderr) != there
        assert len(list(tree.rglob("*.so"))) == (len(LEVELS[MACHINE]) if there else 0)


def test_the_metadata_name_the_licences_of_the_code_and_of_the_models(tree, page, compiler):
    assert build(tree, "wheel", compiler("x86_64")).returncode == 0
    _, files, metadata = wheel_of(tree)
    cards = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src/regard/zoo").glob("*/card.md"))
    assert metadata.get_all("License-File") == ["LICENSE", *cards]
    assert {f"licenses/{card}" for card in cards} <= {file.partition(".dist-info/")[2] for file in files}
    named = {"Apache-2.0", "ISC", "MIT"}  # of the code, and of the packages in the page (page/licenses.md)
    for card in cards:
        told = re.search(r"^Licence: that of its texts: (.+)$", (ROOT / card).read_text(encoding="utf-8"), re.MULTILINE)
        assert told is not None, card
        left = told[1]
        for spelled in (each for each in LICENCES if each in told[1]):
            left, named = left.replace(spelled, ""), named | {LICENCES[spelled]}
        assert not left.strip(", "), left
    assert set(metadata["License-Expression"].split(" AND ")) == named


def test_an_image_is_built_from_files_that_exist_and_docker_may_read():
    recipe = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    readable = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", recipe, re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists() and any(f"{name}/".startswith(f"{each}/") for each in readable), name

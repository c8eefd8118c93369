"""The documentation keeps its word: links lead somewhere, code and commands run, pages of studies name their study."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

from .test_readme import ROOT, blocks, later, run, run_block

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
NAV = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
TO_COME: set[Path] = set()
# In this order their `console` blocks are one session: later commands use what earlier ones made.
SESSION = ("clean", "train", "translate", "look-inside", "align", "generate", "questions")
BRIEF = " --set train.max_steps=2 --set text.vocab_size=300"
SHORT = {"train": BRIEF, "distill": BRIEF, "qa train": " --set train.epochs=1"}


def text(path):
    return path.read_text(encoding="utf-8")


def name(path):
    return str(path.relative_to(ROOT))


def prose(path):
    """Return a page without its fenced code."""
    return re.sub(r"^```.*?^```", "", text(path), flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """Return the fragments by which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(path):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(path)):
        target, _, fragment = link.partition("#")
        to = (path.parent / target).resolve() if target else path
        assert to.exists() or to in TO_COME, f"{link} does not exist"
        assert not fragment or fragment in anchors(to), f"{link} names no heading"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_pages_speak_of_nothing_that_readers_cannot_look_up(path):
    assert not re.findall(r"\bS[1-9]\.[0-9]\b", text(path))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_file_that_is_named_exists(path):
    for file in re.findall(r"(?:`|python )((?:[\w.-]+/)+[\w.-]+\.(?:py|toml|ts|md))\b", text(path)):
        places = {ROOT / file, ROOT / "src" / "regard" / file}
        assert any(place.exists() for place in places) or places & TO_COME, file


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    listed = {DOCS / page for page in NAV}
    assert listed - TO_COME == set(PAGES[1:]) - TO_COME
    assert len(NAV) == len(listed)


def test_every_figure_is_shown_somewhere():
    shown = "\n".join(map(text, PAGES))
    assert [path.name for path in sorted((DOCS / "images").iterdir()) if f"images/{path.name}" not in shown] == []


def commands(path, *languages):
    """Return the command lines in a page's blocks, lines that end in a backslash joined."""
    lines = "".join(block for language in languages for block in blocks(language, text(path)))
    return [line.removeprefix("$ ") for line in lines.replace("\\\n", " ").splitlines()]


def shown_commands():
    """Return every command of ours that a page shows, in blocks and in the text, but for those with `…` or `$NAME`."""
    for path in PAGES:
        in_text = [" ".join(code.split()) for code in re.findall(r"`(regard [^`]+)`", prose(path))]
        for command in [*commands(path, "sh", "console"), *in_text]:
            if command.startswith("regard ") and not re.search(r"[…$;|>]", command):
                yield pytest.param(command.split(" #")[0].strip(), id=f"{name(path)}: {command[:60]}")


@pytest.mark.parametrize("command", list(shown_commands()))
def test_every_command_that_is_shown_has_options_that_exist(command, monkeypatch, capsys):
    run(f"{command} --help", monkeypatch, capsys)


@pytest.mark.parametrize("path", sorted((DOCS / "studies").glob("*.md")), ids=name)
def test_a_study_s_page_names_its_command_and_shows_its_figure(path):
    command, *_ = commands(path, "sh")
    assert f"<!-- study: {command.split()[2]} -->" in text(path)
    assert f"](../images/{path.stem}.png)" in text(path)


SELF_CONTAINED = [
    pytest.param(path, *later(block).values, marks=later(block).marks, id=f"{name(path)}-{number}")
    for path in PAGES[1:]
    for number, block in enumerate(blocks("python", text(path)))
    if "runs/" not in block
]


@pytest.mark.parametrize(("path", "block"), SELF_CONTAINED)
def test_python_blocks_run(path, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_block(path, block)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Return a folder in which the guides' commands were run, on a little text and for a few steps each."""
    folder = tmp_path_factory.mktemp("session")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pairs = [f"{' '.join(word)}\t{' '.join(reversed(word))}" for word in itertools.permutations("abcd")]
        Path("pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
        lines = ["To be", *(pair.replace("\t", " ") for pair in pairs)]
        Path("text.txt").write_text("\n".join(lines * 3) + "\n", encoding="utf-8")
        Path("chinese.txt").write_text("".join(f"我有{n}本书。\n" for n in range(40)), encoding="utf-8")
        Path("terms.tsv").write_text("# of pairs.tsv\na b\tb a\nc\tc|d\tpreferred\n", encoding="utf-8")
        Path("facts.txt").write_text("Ben lives in Rome. Anna lives in Oslo.\n", encoding="utf-8")
        for guide in SESSION:
            for command in commands(DOCS / "guide" / f"{guide}.md", "console"):
                own = re.match(r"regard (qa \w+|\w+)", command)
                assert own is not None, f"console blocks hold our commands only, got {command!r}"
                run(command + SHORT.get(own[1], ""), patch)
    return folder


def test_the_guides_commands_run(session):
    assert all((session / file).exists() for file in ("runs/mine/training.png", "mine-small/model.safetensors"))
    assert "\t" in (session / "bt.tsv").read_text(encoding="utf-8")
    given, written = ((session / file).read_text(encoding="utf-8") for file in ("text.txt", "translations.txt"))
    assert len(written.splitlines()) == len(given.splitlines())
    assert all((session / file).exists() for file in ("heads.png", "answer.png", "runs/generator", "runs/facts"))


@pytest.mark.xfail(not callable(regard.trace), reason="regard.trace is a module", strict=True)
def test_the_generator_s_python_runs(session, monkeypatch):
    monkeypatch.chdir(session)
    for block in blocks("python", text(DOCS / "guide" / "generate.md")):
        run_block(DOCS / "guide" / "generate.md", block)


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert {path.relative_to(tmp_path).with_suffix(".md").as_posix() for path in tmp_path.rglob("*.html")} >= {
        path.relative_to(DOCS).as_posix() for path in PAGES[1:]
    }
    fetched = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//|<link[^>]+href=["']?(?:https?:)?//""")
    for path in tmp_path.rglob("*.html"):
        assert not fetched.search(text(path)), path.name
    for path in tmp_path.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", text(path)), path.name

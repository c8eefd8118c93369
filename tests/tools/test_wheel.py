"""The wheel in an empty environment, without PyTorch, a compiler, Node or git: it translates, traces and serves."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
BUILT = (ROOT / "src/regard/serve/page/index.html").exists() and any((ROOT / "src/regard/native/lib").glob("*/*.so"))


def succeed(command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def pip(*arguments):
    return succeed([sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments])


def make_environment(folder):
    """Installs the wheel with what the server needs, and gives the folder of its programs."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    succeed(build, env=environment)
    (wheel,) = folder.glob("*.whl")
    succeed([sys.executable, "-m", "venv", "--without-pip", folder / "env"])
    pip("--python", folder / "env" / "bin" / "python", "install", f"{wheel}[serve]")
    return folder / "env" / "bin"


@contextmanager
def server(programs, options):
    """A client of a server of that environment, on any free port."""
    command = [programs / "regard", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:
        line = process.stderr.readline()
        try:
            assert "Regard is at" in line, line + process.stderr.read()
            with httpx.Client(base_url=line.split()[3], timeout=30) as client:
                yield client
        finally:
            process.terminate()
            process.stderr.read()


@pytest.mark.skipif(not BUILT, reason="make page lib was not run")
def test_a_fresh_environment_translates_traces_and_serves(tmp_path):
    programs = make_environment(tmp_path)
    (home := tmp_path / "home").mkdir()
    options = {"env": {"PATH": str(programs), "HOME": str(home)}, "cwd": home}

    modules = (
        "import importlib.util as u; print(*[u.find_spec(name) is not None for name in ('regard', 'torch', 'pip')])"
    )
    assert succeed([programs / "python", "-c", modules], **options).split() == ["True", "False", "False"]
    assert succeed([programs / "regard", "translate", "我喜欢音乐。", "他是我的朋友。"], **options).splitlines() == [
        "I like music.",
        "He is my friend.",
    ]
    with server(programs, options) as client:
        assert client.get("/health").json() == {"status": "ok"}
        body = {"q": "我喜欢音乐。", "source": "zh", "target": "en"}
        assert client.post("/translate", json=body).json() == {"translatedText": "I like music."}
        page = client.get("/")
        assert page.status_code == 200 and client.get("/widget.js").status_code == 200 and "widget.js" in page.text

    succeed([programs / "regard", "trace", "你好", "--out", "trace.html"], **options)
    saved = (
        (home / "trace.html").read_text(encoding="utf-8").partition('id="regard-view">')[2].partition("</script>")[0]
    )
    assert json.loads(saved)["views"][0]["target"]["pieces"]

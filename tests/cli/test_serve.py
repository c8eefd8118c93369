"""The commands as a user runs them: `regard serve`, and `regard trace --out x.html`."""

import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from regard.cli import main
from regard.serve import serialize


@pytest.fixture
def start(folders):
    """Start servers in processes of their own, and end them."""
    running = []

    def begin(*options):
        command = [sys.executable, "-u", "-m", "regard", "serve", "--model", str(folders[0]), *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
        running.append(process)
        output = ""
        while "Regard is at" not in output:
            line = process.stderr.readline()
            assert line, f"the server ended: {output}"
            output += line
        return process, output, re.search(r"http://[\w.:\[\]]+", output)[0]

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def test_a_server_prints_its_address_and_stops_on_ctrl_c(start):
    process, output, url = start("--port", "0")
    assert url.startswith("http://127.0.0.1:") and "tiny" in output and "taken" not in output
    assert httpx.get(f"{url}/health", timeout=10).json() == {"status": "ok"}
    assert httpx.get(f"{url}/health", headers={"Host": "evil.example"}).status_code == 400
    assert "tiny" in [model["name"] for model in httpx.get(f"{url}/models").json()["models"]]
    process.send_signal(signal.SIGINT)
    started = time.perf_counter()
    assert process.wait(15) == 0 and time.perf_counter() - started < 10
    assert process.stderr.read() == ""


def test_where_a_port_is_taken_another_is_used(start):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        _, output, url = start("--port", str(taken))
    assert f"port {taken} is taken" in output and not url.endswith(f":{taken}")
    assert httpx.get(f"{url}/health", timeout=10).status_code == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "nobody"], "nobody: there is no such model folder"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--precision", "int4"], "int4"),
    ],
)
def test_wrong_options_are_reported_before_the_server_starts(options, words, folders, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["regard", "serve", "--model", str(folders[0]), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_a_trace_is_saved_as_a_page(folders, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(serialize, "PAGE", tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["regard", "trace", "bad cab", "--model", str(folders[0]), "--out", str(tmp_path / "x.html")]
    )
    with pytest.raises(SystemExit):
        main()
    assert "not built" in capsys.readouterr().err
    (tmp_path / "view.html").write_text("<main></main><!--regard-view-->", "utf-8")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0 and "page saved as" in capsys.readouterr().err
    assert '"model":"tiny"' in (tmp_path / "x.html").read_text(encoding="utf-8")

"""The commands as a user runs them: `regard serve`, and `regard trace --out x.html`."""

import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest

from regard.cli import main
from regard.cli.serve import are_local, serve
from regard.serve import serialize
from regard.serve.server import open_port, outer_address
from tests.serve.server import make_folder


@pytest.fixture
def start(folders):
    """Start servers in processes of their own, and end them."""
    running = []

    def begin(*options, prepare=None):
        command = [sys.executable, "-u", "-m", "regard", "serve", "--model", str(folders[0]), *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8", preexec_fn=prepare)
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
    assert process.wait(60) == 0
    assert process.stderr.read() == ""


@pytest.fixture
def taken():
    """A port on which somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(taken, folders, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["regard", "serve", "--model", str(folders[0]), "--port", str(taken)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and f"port {taken}" in capsys.readouterr().err


def test_the_usual_port_may_give_way_to_a_free_one(taken):
    with pytest.raises(ValueError, match=f"port {taken}"):
        open_port("127.0.0.1", taken)
    with open_port("127.0.0.1", taken, or_free=True) as listener:
        assert listener.getsockname()[1] != taken


def test_a_server_for_other_machines_names_an_address_of_this_one_and_warns(start):
    _, output, url = start("--port", "0", "--host", "0.0.0.0")
    assert urlsplit(url).hostname == outer_address() and "other machines" in output
    assert httpx.get(f"{url}/health", timeout=10).status_code == 200


def test_a_model_without_names_of_its_languages_answers_by_its_own_name(start, tmp_path):
    mine = make_folder(tmp_path, "mine", languages=("zh", "tgt"))
    _, output, url = start("--port", "0", "--model", str(mine))
    assert "mine was trained without a name for each of its languages (zh → tgt)" in " ".join(output.split())
    body = {"q": "bad cab", "source": "zh", "target": "en", "model": "mine"}
    assert httpx.post(f"{url}/translate", json=body, timeout=30).status_code == 200


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


def test_a_server_asks_for_the_keys_and_answers_to_the_names_that_it_was_given(start, monkeypatch):
    monkeypatch.setenv("REGARD_API_KEY", "secret")
    _, output, url = start("--port", "0", "--host", "0.0.0.0", "--allowed-host", "Translate.Example")
    assert "no key" not in output and "other machines" not in output
    named, port = {"Host": "translate.example"}, urlsplit(url).port
    here = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{here}/models", headers=named).status_code == 403
    with_key = {**named, "Authorization": "Bearer secret"}
    assert httpx.get(f"{here}/models", headers=with_key).status_code == 200
    assert httpx.get(f"{here}/metrics", headers=with_key).status_code == 200
    assert httpx.get(f"{here}/health", headers={"Host": "evil.example"}).status_code == 400


def test_metrics_are_local_where_others_can_connect():
    assert [are_local(metrics, "0.0.0.0") for metrics in (None, "local", "all")] == [True, True, False]
    assert not are_local(None, "127.0.0.1")
    with pytest.raises(ValueError, match="'some'"):
        are_local("some", "127.0.0.1")


def test_metrics_may_have_a_port_of_their_own(start, monkeypatch):
    monkeypatch.setenv("REGARD_API_KEY", "secret")
    _, output, _ = start("--port", "0", "--host", "0.0.0.0", "--metrics-port", "0")
    metrics, url = re.findall(r"http://[\w.:]+", output)
    assert urlsplit(metrics).hostname == "127.0.0.1", "others can reach the server, and not its metrics"
    assert "regard_texts_total" in httpx.get(f"{metrics}/metrics", timeout=10).text
    for elsewhere in (f"{metrics}/health", f"{url}/metrics"):
        refused = httpx.get(elsewhere, timeout=10)
        assert refused.status_code == 404 and f"port {urlsplit(metrics).port}" in refused.json()["error"]
    assert httpx.get(f"{url}/health", timeout=10).status_code == 200


def connect_at_once(process, url, n):
    """Open connections while the server sleeps, so that all of them wait for it when it wakes up."""
    address, opened = urlsplit(url), ExitStack()
    process.send_signal(signal.SIGSTOP)
    connections = [opened.enter_context(socket.create_connection((address.hostname, address.port))) for _ in range(n)]
    process.send_signal(signal.SIGCONT)
    return connections, opened


@pytest.mark.parametrize(("n_files", "n_served", "lines"), [(200, 72, 0), (60, 15, 1)])
def test_a_server_out_of_files_refuses_connections_and_recovers(start, n_files, n_served, lines):
    resource = pytest.importorskip("resource")
    prepare = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (n_files, n_files))
    process, _, url = start("--port", "0", prepare=prepare)
    assert httpx.get(f"{url}/health", timeout=10).status_code == 200
    connections, opened = connect_at_once(process, url, 240)
    with opened:
        refused = 0
        for connection in connections[n_served:]:
            connection.settimeout(10)
            refused += b"503" in connection.recv(65536)
        assert refused == 240 - n_served, f"each beyond {n_served} is told so"
        served = connections[0]
        served.settimeout(10)
        served.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in served.recv(65536), "those who are in are served meanwhile"
    body = {"q": "bad cab", "source": "zh", "target": "en"}
    assert httpx.post(f"{url}/translate", json=body, timeout=30).status_code == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    log = process.stderr.read().splitlines()
    assert len(log) <= 3 * lines and all("no connections are accepted for a second" in line for line in log), log


def test_the_models_know_the_device_that_was_chosen(folders, monkeypatch):
    made = []
    monkeypatch.setattr("regard.cli.serve.run", lambda app, listening, *_: listening[0].close())
    monkeypatch.setattr("regard.cli.serve.make_app", lambda registry, settings: made.append(registry.device))
    monkeypatch.setattr("regard.pipeline.find_device", lambda name: "cpu")
    serve(model=[str(folders[0])], port=0)
    assert made == ["cpu"], "of auto the queue would make one worker, as for a GPU"

"""Does a server stay right, and its memory bounded, under mixed load for long? `python benchmarks/soak.py`.

Clients translate with every model, trace, stream, and disconnect midway, beside each other. Every answer must be the
one that the server gave when it was asked alone, and memory may grow by a tenth after the first minute.
"""

import json
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import Annotated
from urllib.parse import urlsplit

import httpx
import typer

TEXTS = {
    "zh": [
        "介绍一下西安",
        "我喜欢音乐。",
        "他昨天在北京买了一本书。",
        "火车几点到？今天天气很好。",
        "你好。" * 12,
        "我们明天去学校。\n他是我的朋友。",
    ],
    "en": [
        "I like music.",
        "He bought a book in Beijing yesterday.",
        "When does the train arrive? The weather is fine today.",
        "Thank you. " * 12,
        "We go to school tomorrow.\nHe is my friend.",
    ],
}
GROWTH = 1.1


class Soak:
    """Sends requests whose answers are known, and counts what happens."""

    def __init__(self, url: str):
        self.url = url
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.lock = Lock()
        models = httpx.get(f"{url}/models", timeout=60).json()["models"]
        self.requests = [(m["name"], text, beam) for m in models for text in TEXTS[m["src_lang"]] for beam in (1, 5)]
        self.expected = {each: self._translate(*each) for each in self.requests}

    def _translate(self, model: str, text: str, beam: int) -> str:
        target = "en" if model.startswith("zh") else "zh"
        body = {"q": text, "source": "auto", "target": target, "model": model, "beam": beam}
        response = httpx.post(f"{self.url}/translate", json=body, timeout=120)
        response.raise_for_status()
        return response.json()["translatedText"]

    def _stream(self, model: str, text: str, beam: int) -> str:
        body = {"text": text, "model": model, "beam": beam}
        lines = httpx.post(f"{self.url}/translate/stream", json=body, timeout=120).text.splitlines()
        last = json.loads(lines[-1])
        if last["error"] is not None:
            raise ValueError(last["error"])
        view = httpx.get(f"{self.url}/trace/{last['id']}", timeout=120)
        found = view.json().get("output", "") if view.status_code == 200 else ""
        return last["text"] if found in last["text"] else f"another trace: {found}"

    def _trace(self, model: str, text: str, beam: int) -> str:
        view = httpx.post(f"{self.url}/trace", json={"text": text, "model": model, "beam": beam}, timeout=120).json()
        whole = self.expected[model, text, beam]
        return whole if whole.startswith(view["output"]) else view["output"]

    def _leave(self, model: str, text: str, beam: int) -> str:
        path, key = random.choice([("/translate", "q"), ("/translate/stream", "text"), ("/trace", "text")])
        body = json.dumps({key: text * 5, "target": "en" if model.startswith("zh") else "zh", "model": model}).encode()
        address = urlsplit(self.url)
        head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(random.random() / 5)
        return self.expected[model, text, beam]

    def client(self, seed: int, done: Event) -> None:
        """Send requests of all kinds until the time is over."""
        chance = random.Random(seed)
        kinds = {"translate": self._translate, "stream": self._stream, "trace": self._trace, "leave": self._leave}
        while not done.is_set():
            name, request = chance.choice(list(kinds)), chance.choice(self.requests)
            try:
                found = kinds[name](*request)
            except (httpx.HTTPError, OSError, ValueError, KeyError, IndexError) as error:
                found = f"{type(error).__name__}: {error}"
            with self.lock:
                self.counts[name] += 1
                if found != self.expected[request]:
                    self.wrong.append(f"{name} {request}: {found!r} instead of {self.expected[request]!r}")


def resident_mib(pid: int) -> float:
    """Return the memory of a process (Linux)."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))[0]) / 1024


def start_server() -> tuple[subprocess.Popen[str], str]:
    """Start a server with the bundled models."""
    command = [sys.executable, "-u", "-m", "regard", "serve", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://\S+", line):
            return process, found[0]
    raise RuntimeError("the server did not start")


def main(
    minutes: Annotated[float, typer.Option(help="How long.")] = 30.0,
    clients: Annotated[int, typer.Option(help="Clients beside each other.")] = 8,
) -> None:
    """Run the clients, print the server's memory each minute, and fail where an answer was wrong or memory grew."""
    process, url = start_server()
    memory, done = [], Event()
    try:
        soak = Soak(url)
        with ThreadPoolExecutor(clients) as pool:
            for seed in range(clients):
                pool.submit(soak.client, seed, done)
            started = time.monotonic()
            while (passed := time.monotonic() - started) < 60 * minutes:
                time.sleep(min(60.0, 60 * minutes - passed))
                memory.append(resident_mib(process.pid))
                print(
                    f"{(time.monotonic() - started) / 60:5.1f} min  {memory[-1]:7.1f} MiB  {dict(soak.counts)}",
                    flush=True,
                )
            done.set()
    finally:
        process.terminate()
    grown = max(memory) / memory[0]
    print(json.dumps({"memory_mib": memory, "growth": grown, "requests": soak.counts, "wrong": len(soak.wrong)}))
    for each in soak.wrong[:10]:
        print(each)
    if soak.wrong or grown > GROWTH:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

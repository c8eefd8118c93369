"""What throughput do 64 concurrent clients get, with their texts batched and one by one?

On a GPU there are two ways of batching: a text starts as soon as a slot is free, or waits until a batch is finished.

Ceiling: the same texts passed to the same model in one list, without a server, in one thread; a server has several.
Clients and server share the machine; each client sends its next request as soon as it has its response. Every response
is compared with that of the ceiling: none may be lost, mixed up or different. Then many requests are sent while the
server's memory is monitored.
"""

import argparse
import asyncio
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import torch
from loopback import Answer, ask_all
from measure import keep
from rich.console import Console
from rich.table import Table

from regard.data.files import read_lines
from regard.pipeline import load_translator
from regard.serve.server import ServeSettings
from regard.study.repeats import signature

MODEL = "zh-en"
WHO = ("我", "他的朋友", "老师", "这个孩子", "我们", "她姐姐", "那位医生", "邻居")
WHEN = ("昨天", "今天早上", "下个星期", "每天晚上")
WHAT = (
    "在图书馆看书",
    "去火车站",
    "喜欢音乐",
    "介绍一下西安",
    "想学习英语",
    "给我打了一个电话",
    "买了三本新书",
    "很忙",
)
TEXTS = [f"{who}{when}{what}。" for who, when, what in product(WHO, WHEN, WHAT)]
WARM = {"cpu": 64, "cuda": 1024}  # requests before anything is measured; a GPU has many sizes to capture
ALONE = {"batch_texts": 1}
WAYS: dict[str, dict[str, tuple[dict[str, Any], bool]]] = {  # a server's settings, and whether texts wait for a batch
    "cpu": {"together": ({}, False), "alone": (ALONE, False)},
    "cuda": {"slots": ({}, False), "together": ({"workers": 1}, True), "alone": ({"workers": 1, **ALONE}, True)},
}


@dataclass(frozen=True)
class Load:
    """What the clients saw."""

    requests: int
    per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    lost: int  # not answered, or with an error
    wrong: int  # answered with something else than the model says
    texts_together: float  # mean size of a batch


def run_server(settings: ServeSettings, device: str, waits: bool, told: Any) -> None:
    """Serves in a process of its own, and tells where."""
    from regard.engine import BatchScheduler
    from regard.engine.cuda import CudaEngine
    from regard.serve.models import ModelRegistry
    from regard.serve.server import make_app, open_port, serve, url_of

    if waits:
        CudaEngine.scheduler = BatchScheduler  # pyright: ignore[reportAttributeAccessIssue]  # texts wait for a batch's end instead of a slot
    door = open_port("127.0.0.1", 0)
    serve(make_app(ModelRegistry([MODEL], device=device), settings), [door], settings, lambda: told.put(url_of(door)))


@contextmanager
def server(device: str, way: str) -> Iterator[tuple[str, int]]:
    """Gives a server's address and the number of its process."""
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    changes, waits = WAYS[device][way]
    process = context.Process(target=run_server, args=(ServeSettings(**changes), device, waits, told), daemon=True)
    process.start()
    assert process.pid is not None, "a process that was started has a number"
    try:
        yield told.get(), process.pid
    finally:
        process.terminate()
        process.join()


@dataclass(frozen=True)
class Test:
    """What is asked for, of what, and how often."""

    texts: list[str]
    device: str
    clients: int
    requests: int
    rounds: int
    long_run: int

    @property
    def warm(self) -> int:
        """How many requests come before anything is measured."""
        return WARM[self.device]


def expected(test: Test, beam: int) -> tuple[dict[str, str], float]:
    """Translates all texts without a server, and gives how many it does in a second."""
    torch.set_num_threads(1)
    translator = load_translator(MODEL, device=test.device)
    chosen = replace(translator.settings, beam=beam, method="greedy" if beam == 1 else "beam")
    for _ in range(2):
        translator.translate(test.texts[: test.warm], chosen)
    started = time.perf_counter()
    found = translator.translate(test.texts, chosen)
    seconds = time.perf_counter() - started
    return {text: each.text for text, each in zip(test.texts, found, strict=True)}, len(test.texts) / seconds


def load(url: str, test: Test, n_requests: int, beam: int, truth: dict[str, str]) -> Load:
    """Sends requests, and compares each answer."""
    texts = list(islice(cycle(test.texts), n_requests))
    batches, translated = counts(url)
    started = time.perf_counter()
    answers = asyncio.run(ask_all(url, texts, test.clients, beam=beam))
    seconds = time.perf_counter() - started
    batches_after, translated_after = counts(url)
    return summed(answers, seconds, (translated_after - translated) / (batches_after - batches), truth)


def summed(answers: list[Answer], seconds: float, together: float, truth: dict[str, str]) -> Load:
    """Sums up what the clients saw."""
    waits = statistics.quantiles([answer.seconds * 1000 for answer in answers], n=100, method="inclusive")
    lost = sum(answer.status != 200 for answer in answers)
    wrong = sum(answer.status == 200 and answer.said != truth[answer.text] for answer in answers)
    return Load(len(answers), len(answers) / seconds, waits[49], waits[94], waits[98], lost, wrong, together)


def counts(url: str) -> tuple[int, int]:
    """Asks a server how many batches and texts it had."""
    said = urlopen(f"{url}/metrics").read().decode()
    names = ("regard_batch_texts_count", "regard_texts_total")
    batches, texts = (int(match[1]) for name in names if (match := re.search(rf"^{name} (\d+)$", said, re.M)))
    return batches, texts


def resident(pid: int) -> float | None:
    """Gives the MiB that a process holds, where the system tells."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"^VmRSS:\s+(\d+) kB", status.read_text(), re.M) if status.exists() else None
    return int(found[1]) / 1024 if found else None


def watch_memory(test: Test) -> tuple[list[float | None], Load]:
    """Sends many requests in ten portions, and gives the server's memory before and after each."""
    truth, _ = expected(test, 5)
    with server(test.device, next(iter(WAYS[test.device]))) as (url, pid):
        load(url, test, test.warm, 5, truth)
        held, loads = [resident(pid)], []
        for _ in range(10):
            loads.append(load(url, test, test.long_run // 10, 5, truth))
            held.append(resident(pid))
    whole = replace(loads[-1], requests=test.long_run, lost=sum(each.lost for each in loads))
    return held, replace(whole, wrong=sum(each.wrong for each in loads))


def compare(test: Test, beam: int) -> dict[str, Any]:
    """Asks one server of each way in turn, a GPU's with each text by itself a quarter as often: it would take long."""
    truth, ceiling = expected(test, beam)
    requests = {
        way: test.requests // (4 if way == "alone" and test.device == "cuda" else 1) for way in WAYS[test.device]
    }
    found: dict[str, list[Load]] = {way: [] for way in WAYS[test.device]}
    with ExitStack() as open_ones:
        urls = {way: open_ones.enter_context(server(test.device, way))[0] for way in found}
        for way, url in urls.items():
            load(url, test, min(test.warm, requests[way]), beam, truth)
        for _ in range(test.rounds):
            for way, url in urls.items():
                found[way].append(load(url, test, requests[way], beam, truth))
                print(f"beam {beam}, {way}: {found[way][-1].per_second:,.1f} texts/s", file=sys.stderr)
    middle = {way: sorted(loads, key=lambda each: each.per_second)[len(loads) // 2] for way, loads in found.items()}
    gain = next(iter(middle.values())).per_second / middle["alone"].per_second
    return {"beam": beam, "ceiling": ceiling, "gain": gain, **{way: vars(each) for way, each in middle.items()}}


def show(compared: list[dict[str, Any]], held: list[float | None], whole: Load) -> None:
    """Prints the tables."""
    table = Table(title="clients on loopback")
    for name in ("beam", "texts", "a second", "p50 ms", "p95 ms", "p99 ms", "a batch", "lost", "wrong"):
        table.add_column(name, justify="right")
    for row in compared:
        for name in (way for way in ("alone", "together", "slots") if way in row):
            each = Load(**row[name])
            numbers = [each.per_second, each.p50_ms, each.p95_ms, each.p99_ms, each.texts_together]
            table.add_row(str(row["beam"]), name, *(f"{x:.1f}" for x in numbers), str(each.lost), str(each.wrong))
        table.add_row(str(row["beam"]), "no server", f"{row['ceiling']:.1f}", *[""] * 6)
    console = Console()
    console.print(table)
    gains = ", ".join(f"× {row['gain']:.1f} with beam {row['beam']}" for row in compared)
    console.print(f"the usual way against alone: {gains}")
    shown = " ".join("?" if each is None else f"{each:.0f}" for each in held)
    console.print(f"memory over {whole.requests} requests, MiB: {shown}; lost {whole.lost}, wrong {whole.wrong}")


def main() -> None:
    """Measures, shows and keeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=list(WAYS), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--text", type=Path, default=None, help="Chinese texts, one a line, instead of short ones")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    chosen = parser.parse_args()
    texts = TEXTS if chosen.text is None else [line.split("\t")[0] for line in read_lines(str(chosen.text))]
    requests, rounds, long_run = (128, 1, 1000) if chosen.quick else (1024, 3, 10_000)
    if chosen.device == "cuda":
        requests *= 2
    test = Test(list(dict.fromkeys(texts)), chosen.device, chosen.clients, requests, rounds, long_run)
    compared = [compare(test, beam) for beam in (1, 5)]
    held, whole = watch_memory(test)
    show(compared, held, whole)
    record = {"compared": compared, "memory_mib": held, "long_run": vars(whole)}
    asked = {"model": MODEL, "clients": test.clients, "texts": len(test.texts), "workers": ServeSettings().workers}
    keep(f"serve-{test.device}", {**record, "signature": signature(test.device, **asked)}, chosen.results)


if __name__ == "__main__":
    main()

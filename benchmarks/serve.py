"""What do 64 clients at once get from a server, with their texts translated together and each by itself?

Ceiling: the same texts handed to the same model in one list, without a server, in one thread; a server has several.
Clients and server share the machine; each client asks again as soon as it has its answer. Every answer is compared
with that of the ceiling: none may be lost, late for another or different. Then many requests are sent while the
server's memory is watched.
"""

import argparse
import asyncio
import multiprocessing
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

import regard
from regard.serve.settings import ServeSettings
from regard.study.signature import signature

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
WARM = 64  # requests before anything is measured


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


def run_server(settings: ServeSettings, told: Any) -> None:
    """Serves in a process of its own, and tells where."""
    from regard.serve.app import make_app
    from regard.serve.run import address, open_port, serve
    from regard.serve.shelf import Shelf

    door = open_port("127.0.0.1", 0)
    serve(make_app(Shelf([MODEL]), settings), door, settings, lambda: told.put(address(door)))


@contextmanager
def server(**changes: Any) -> Iterator[tuple[str, int]]:
    """Gives a server's address and the number of its process."""
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    process = context.Process(target=run_server, args=(ServeSettings(**changes), told), daemon=True)
    process.start()
    assert process.pid is not None, "a process that was started has a number"
    try:
        yield told.get(), process.pid
    finally:
        process.terminate()
        process.join()


def expected(beam: int) -> tuple[dict[str, str], float]:
    """Translates all texts without a server, and gives how many it does in a second."""
    torch.set_num_threads(1)
    translator = regard.load(MODEL)
    chosen = replace(translator.settings, beam=beam, method="greedy" if beam == 1 else "beam")
    translator.translate(TEXTS[:WARM], chosen)
    started = time.perf_counter()
    found = translator.translate(TEXTS, chosen)
    seconds = time.perf_counter() - started
    return {text: each.text for text, each in zip(TEXTS, found, strict=True)}, len(TEXTS) / seconds


def load(url: str, n_requests: int, n_clients: int, beam: int, truth: dict[str, str]) -> Load:
    """Sends requests, and compares each answer."""
    texts = list(islice(cycle(TEXTS), n_requests))
    batches, translated = counts(url)
    started = time.perf_counter()
    answers = asyncio.run(ask_all(url, texts, n_clients, beam=beam))
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


def watch_memory(n_requests: int, n_clients: int, truth: dict[str, str]) -> tuple[list[float | None], Load]:
    """Sends many requests in ten portions, and gives the server's memory before and after each."""
    with server() as (url, pid):
        load(url, WARM, n_clients, 5, truth)
        held, loads = [resident(pid)], []
        for _ in range(10):
            loads.append(load(url, n_requests // 10, n_clients, 5, truth))
            held.append(resident(pid))
    whole = replace(loads[-1], requests=n_requests, lost=sum(each.lost for each in loads))
    return held, replace(whole, wrong=sum(each.wrong for each in loads))


def compare(n_requests: int, n_clients: int, beam: int, rounds: int) -> dict[str, Any]:
    """Asks two servers in turn, one that translates texts together and one that does not."""
    truth, ceiling = expected(beam)
    found: dict[str, list[Load]] = {"together": [], "alone": []}
    with server() as together, server(batch_texts=1) as alone:
        urls = {"together": together[0], "alone": alone[0]}
        for url in urls.values():
            load(url, WARM, n_clients, beam, truth)
        for _ in range(rounds):
            for name, url in urls.items():
                found[name].append(load(url, n_requests, n_clients, beam, truth))
    best = {name: sorted(loads, key=lambda each: each.per_second)[len(loads) // 2] for name, loads in found.items()}
    gain = best["together"].per_second / best["alone"].per_second
    return {"beam": beam, "ceiling": ceiling, "gain": gain, **{name: vars(each) for name, each in best.items()}}


def show(compared: list[dict[str, Any]], held: list[float | None], whole: Load) -> None:
    """Prints the tables."""
    table = Table(title="64 clients on loopback")
    for name in ("beam", "texts", "a second", "p50 ms", "p95 ms", "p99 ms", "a batch", "lost", "wrong"):
        table.add_column(name, justify="right")
    for row in compared:
        for name in ("alone", "together"):
            each = Load(**row[name])
            numbers = [each.per_second, each.p50_ms, each.p95_ms, each.p99_ms, each.texts_together]
            table.add_row(str(row["beam"]), name, *(f"{x:.1f}" for x in numbers), str(each.lost), str(each.wrong))
        table.add_row(str(row["beam"]), "no server", f"{row['ceiling']:.1f}", *[""] * 6)
    console = Console()
    console.print(table)
    gains = ", ".join(f"× {row['gain']:.1f} with beam {row['beam']}" for row in compared)
    console.print(f"together against alone: {gains}")
    shown = " ".join("?" if each is None else f"{each:.0f}" for each in held)
    console.print(f"memory over {whole.requests} requests, MiB: {shown}; lost {whole.lost}, wrong {whole.wrong}")


def main() -> None:
    """Measures, shows and keeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    chosen = parser.parse_args()
    n, many, rounds = (128, 1000, 1) if chosen.quick else (1024, 10_000, 3)
    compared = [compare(n, chosen.clients, beam, rounds) for beam in (1, 5)]
    held, whole = watch_memory(many, chosen.clients, expected(5)[0])
    show(compared, held, whole)
    record = {"compared": compared, "memory_mib": held, "long_run": vars(whole)}
    keep(
        "serve-cpu",
        {**record, "signature": signature("cpu", model=MODEL, clients=chosen.clients, workers=ServeSettings().workers)},
        chosen.results,
    )


if __name__ == "__main__":
    main()

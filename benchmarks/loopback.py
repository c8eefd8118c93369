"""Clients that cost little: HTTP over kept connections, written by hand, so that the server is what is measured."""

import asyncio
import json
import time
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    """What a client got for its text, and how long it waited."""

    text: str
    status: int
    said: str | None
    seconds: float


async def ask_all(url: str, texts: list[str], n_clients: int, **more: object) -> list[Answer]:
    """Lets some clients ask for one text after another, each as soon as it has its answer, until none is left."""
    left, answers = list(enumerate(texts))[::-1], {}

    async def client() -> None:
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        while left:
            number, text = left.pop()
            answers[number] = await _ask(reader, writer, text, more)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client() for _ in range(n_clients)))
    return [answers[number] for number in range(len(texts))]


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str, more: dict[str, object]
) -> Answer:
    body = json.dumps({"q": text, "source": "zh", "target": "en", **more}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    started = time.perf_counter()
    writer.write(head.encode() + b"\r\n\r\n" + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:"))
    said = json.loads(await reader.readexactly(length))
    seconds = time.perf_counter() - started
    return Answer(text, int(lines[0].split()[1]), said.get("translatedText"), seconds)

"""A real server on a free port, with small random models."""

import json
import threading
from contextlib import contextmanager

import httpx
import torch

from regard.checkpoint.weights import Checkpoint, save_model
from regard.config import DataSettings, DecodeSettings, ModelSettings, Settings, TextSettings
from regard.serve import PAGE, ServeSettings
from regard.serve.models import ModelRegistry
from regard.serve.server import make_app, make_server, open_port, url_of
from tests.pipeline.test_translator import TOKENIZER
from tests.trace.makers import make_model

SIZES = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 22, "n_heads": 2, "d_ff": 13, "dropout": 0.0}
DECODE = DecodeSettings(beam=3, max_extra=8, max_ratio=1.0, retry=False)  # random models repeat themselves
TEXTS = ["bad cab", "hello", "face", "dead bee", "jihgfedcba", "a", "cafe", "hide", "big head", "ice age"]


def make_folder(folder, name, family="transformer", languages=("zh", "en")):
    """Save a random model under a name."""
    sizes = dict(SIZES) if family == "transformer" else {**SIZES, "n_heads": 1, "n_encoder_layers": 1}
    made = Settings(
        model=ModelSettings(family=family, tie="none", **sizes),
        data=DataSettings(src_lang=languages[0], tgt_lang=languages[1]),
        text=TextSettings(max_len=40),
        decode=DECODE,
    )
    model = make_model(family, dtype=torch.float32, **sizes)
    save_model(folder / name, Checkpoint(model, TOKENIZER, made), {"test": {"bleu": 12.5}})
    return folder / name


@contextmanager
def running(models, settings=ServeSettings(), page=PAGE):
    """Run a server in a thread, and yield its URL."""
    ready, app = threading.Event(), make_app(models, settings, page)
    listener = open_port("127.0.0.1", 0)
    server = make_server(app, settings, ready.set)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    assert ready.wait(20), "the server did not start"
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def client_of(models, **changes):
    """Run a server with some settings changed, and yield a client of it."""
    with running(models, ServeSettings(**changes)) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def lines_of(response):
    """Return the objects of a stream."""
    return [json.loads(line) for line in response.text.splitlines()]


def make_registry(folders, home):
    """Make a registry of these models alone."""
    return ModelRegistry([str(folder) for folder in folders], home=home)

"""Several processes: the same result as one with twice the batch, also after one of them was killed."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from socket import socket

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from regard.checkpoint import read_json
from regard.train.distributed import World, on_main
from regard.train.state import checkpoints, read_progress
from tests.train.tiny import reversals, write_tsv

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
SETTINGS = (
    *("text.vocab_size=32", "text.byte_fallback=false", "data.valid_size=30"),
    *("model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=16", "model.n_heads=2", "model.d_ff=32"),
    *("model.dropout=0.0", "train.max_steps=24", "train.warmup=4", "train.device=cpu", "train.ema=0.9"),
    *("train.valid_every=8", "train.save_every=4", "train.log_every=1", "train.valid_sentences=8"),
)
ONE = [sys.executable, "-m"]
TWO = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "--max-restarts",
    "3",
    "-m",
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_tsv(tmp_path_factory.mktemp("text") / "pairs.tsv", reversals(300, seed=5))


def command(launcher, text, out, *more):
    sets = [part for each in (*SETTINGS, *more) for part in ("--set", each)]
    return [*launcher, "regard", "train", "--data", str(text), "--out", str(out), "--preset", "tiny", *sets]


def run(launcher, text, out, *more):
    done = subprocess.run(command(launcher, text, out, *more), env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


@pytest.fixture(scope="module")
def alone(text, tmp_path_factory):
    """One process with twice the batch."""
    out = tmp_path_factory.mktemp("alone") / "run"
    run(ONE, text, out, "train.batch_tokens=256")
    return out


def assert_same_end(one, other):
    first, second = (read_progress(checkpoints(each / "checkpoints")[-1] / "progress.json") for each in (one, other))
    assert first.step == second.step == 24
    assert first.tokens == second.tokens
    torch.testing.assert_close(torch.tensor(second.losses), torch.tensor(first.losses), rtol=0, atol=1e-4)
    one_model, other_model = (load_file(each / "model" / "model.safetensors") for each in (one, other))
    assert one_model.keys() == other_model.keys()
    for name in one_model:
        # The same number added to all keys changes no weight: its gradient is rounding, which Adam scales up to a step.
        if not name.endswith("w_k.bias"):
            torch.testing.assert_close(other_model[name], one_model[name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["false", "true"])
def test_two_processes_are_one_with_twice_the_batch(text, alone, tmp_path, shard):
    message = run(TWO, text, tmp_path / "run", "train.batch_tokens=128", f"train.shard={shard}")
    assert message.count("model in") == 1  # the leader speaks for all
    assert_same_end(alone, tmp_path / "run")


@pytest.mark.slow
def test_a_team_of_which_one_was_killed_goes_on(text, alone, tmp_path):
    out = tmp_path / "run"
    team = subprocess.Popen(
        command(TWO, text, out, "train.batch_tokens=128"), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    while not any(out.glob("checkpoints/step-00000004")):
        assert team.poll() is None
        time.sleep(0.005)
    workers = subprocess.run(["pgrep", "-P", str(team.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[-1]), 9)
    _, message = team.communicate(timeout=300)
    assert team.returncode == 0, message[-3000:]
    assert "resuming from step" in message
    assert_same_end(alone, out)
    assert read_json(out / "model" / "scores.json")["valid"]


class TestMainProcess:
    """The others wait for work of the main process, in threads here, with a store of their own."""

    def both(self, work, beat=0.01, silence=30.0):
        store = dist.HashStore()
        with ThreadPoolExecutor(2) as pool:
            return [pool.submit(on_main, World(rank, 2, store=store), "work", work, beat, silence) for rank in (1, 0)]

    def test_its_result_is_everybodys_however_long_it_takes(self):
        done = self.both(lambda: time.sleep(0.1) or {"bleu": 7.5})  # ten times as long as the others wait at once
        assert [each.result() for each in done] == [{"bleu": 7.5}] * 2

    def test_its_failure_is_everybodys(self):
        def fail():
            raise ValueError("no text")

        other, main = self.both(fail)
        with pytest.raises(ValueError, match="no text"):
            main.result()
        with pytest.raises(ValueError, match="work: the main process failed"):
            other.result()

    def test_its_silence_is_not_waited_for(self):
        alone = World(1, 2, store=dist.HashStore())
        with pytest.raises(ValueError, match=r"must be heard of every 0.01 s, got 0.05 s of silence"):
            on_main(alone, "work", lambda: None, beat=0.01, silence=0.05)


@pytest.mark.slow
def test_processes_without_a_shared_folder_end_well(text, alone, tmp_path):
    with closing(socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    team = [
        subprocess.Popen(
            command(ONE, text, tmp_path / f"disk-{rank}" / "run", "train.batch_tokens=128"),
            env={**ENVIRONMENT, **place, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [each.communicate(timeout=300)[1] for each in team]
    assert [each.returncode for each in team] == [0, 0], said
    assert_same_end(alone, tmp_path / "disk-0" / "run")
    assert not (tmp_path / "disk-1" / "run" / "model").exists()


def test_shards_need_a_team(text, tmp_path):
    done = subprocess.run(
        command(ONE, text, tmp_path / "run", "train.shard=true"), env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "train.shard needs several processes, got 1: start them with torchrun" in done.stderr
    assert not (tmp_path / "run").exists()

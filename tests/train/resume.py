"""Kills a run again and again at random moments, goes on with it, and compares the end with a run left in peace.

python tests/train/resume.py [times] [seed]
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
# Everything that a run must remember is in play: dropout, averages, accumulation, patience.
SETTINGS = (
    *("text.vocab_size=48", "text.byte_fallback=false", "data.valid_size=40"),
    *("model.d_model=32", "model.n_heads=2", "model.d_ff=64", "model.dropout=0.2"),
    *("model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("train.batch_tokens=256", "train.accumulate=2", "train.max_steps=150", "train.warmup=10", "train.ema=0.9"),
    *("train.valid_every=8", "train.save_every=10", "train.log_every=7", "train.valid_sentences=8"),
    *("train.lr=0.02", "train.patience=3", "train.stop_on=loss", "train.average=2", "train.device=cpu", "train.keep=2"),
)
WORDS = ["ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du", "ga", "ge", "gi", "go", "gu"]


def main(times: int = 10, seed: int = 0) -> None:
    """Compare `times` interrupted runs with one that was not."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        text = write_text(place / "pairs.tsv")
        began = time.perf_counter()
        finish(start(text, place / "whole"))
        seconds = time.perf_counter() - began
        for n in range(times):
            out = place / f"killed-{n}"
            kills = run_with_kills(text, out, chance, seconds)
            compare(place / "whole", out)
            print(f"run {n + 1}: killed {kills} times, the same to the last bit", flush=True)


def write_text(path: Path, n: int = 700) -> Path:
    """Write sentences of two to seven words, each with its words in reverse."""
    chance = random.Random(7)
    sentences = {tuple(chance.choice(WORDS) for _ in range(chance.randint(2, 7))) for _ in range(n)}
    lines = [f"{' '.join(words)}\t{' '.join(reversed(words))}\n" for words in sorted(sentences)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def command(text: Path, out: Path, *more: str) -> list[str]:
    """Return the command that trains; a repeated setting replaces the one before."""
    sets = [part for each in SETTINGS for part in ("--set", each)]
    return [sys.executable, "-m", "regard", "train", "--data", str(text), "--out", str(out), *sets, *more]


def start(text: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """Start training in a process of its own."""
    return subprocess.Popen(
        command(text, out, *more), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for the end, which must have this exit code, and return what was printed."""
    printed, _ = process.communicate(timeout=600)
    if process.returncode != code:
        raise SystemExit(f"the run must end with {code}, got {process.returncode}:\n{printed}")
    return printed


def wait_for_checkpoint(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until the run has something to go on from, or has ended."""
    while process.poll() is None and not any(out.glob("checkpoints/step-????????")):
        time.sleep(0.01)


def run_with_kills(text: Path, out: Path, chance: random.Random, seconds: float) -> int:
    """Kill the run at random moments until it is done, and return how often; the last time it is left to finish."""
    process, kills = start(text, out), 0
    wait_for_checkpoint(process, out)
    while True:
        try:
            process.wait(chance.uniform(0.0, seconds if kills else seconds / 4))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            process = start(text, out, "--resume")
        else:
            finish(process)
            return kills


def compare(one: Path, other: Path) -> None:
    """Raise AssertionError unless both runs have the same model and the same last state, byte for byte."""
    last = max(path.name for path in one.glob("checkpoints/step-????????"))
    for name in ("model/model.safetensors", f"checkpoints/{last}/state.safetensors"):
        if (one / name).read_bytes() != (other / name).read_bytes():
            raise SystemExit(f"{name} of {other.name} differs from that of {one.name}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))

"""Processes started by torchrun: rank, collectives, DDP and FSDP2."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event, Thread
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's rank among those that torchrun started."""

    rank: int = 0
    size: int = 1
    restarts: int = 0  # how often torchrun has restarted the processes after a failure
    store: Store | None = None  # what the processes tell each other without a collective

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0


def read_world() -> World:
    """Read the rank from torchrun's environment variables."""
    rank, world, restarts = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("TORCHELASTIC_RESTART_COUNT", "0"))
    )
    return World(rank, world, restarts)


def init_distributed(device: torch.device) -> World:
    """Join the process group announced by torchrun, if there is one."""
    world = read_world()
    if world.size > 1 and device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if world.size > 1 and not dist.is_initialized():
        store, rank, size = next(dist.rendezvous("env://"))  # pyright: ignore[reportPrivateImportUsage]
        # torchrun may keep the store over a restart: addresses of the last start must not be found in it.
        store = dist.PrefixStore(f"regard, start {world.restarts}", store)  # pyright: ignore[reportPrivateImportUsage]
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=size)
        world = replace(world, store=store)
    return world


def shutdown_distributed(world: World) -> None:
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()


def distribute(module: nn.Module, world: World, shard: bool) -> nn.Module:
    """Wrap a module so that gradients are averaged over copies (DDP), or parameters are sharded (FSDP2)."""
    if shard:
        return _shard(module, world)
    if world.size == 1:
        return module
    return DistributedDataParallel(module)


def barrier(world: World) -> None:
    """Wait until every process has reached this point."""
    if world.size > 1:
        dist.barrier()


BEAT = 5.0  # seconds between two signs of life of the main process
SILENCE = 300.0  # seconds without one after which it is given up


def on_main(world: World, name: str, work: Callable[[], T], beat: float = BEAT, silence: float = SILENCE) -> T:
    """Return what work in the main process returns, which must be JSON or None; the others wait as long as it takes.

    A barrier would time out after some minutes of work. The others fail if the main process fails, or falls silent.
    """
    if world.store is None:
        return work()
    if not world.is_main:
        return _wait_for_main(world.store, name, beat, silence)
    done = Event()
    pulse = Thread(target=_send_beats, args=(world.store, name, done, beat), daemon=True)
    pulse.start()
    answer = {"failed": True}
    try:
        result = work()
        answer = {"result": result}
        return result
    finally:
        done.set()
        pulse.join()
        world.store.set(f"{name} done", json.dumps(answer))


def _send_beats(store: Store, name: str, done: Event, beat: float) -> None:
    while not done.wait(beat):
        store.add(f"{name} beats", 1)


def _wait_for_main(store: Store, name: str, beat: float, silence: float) -> Any:
    beats, heard = -1, time.monotonic()
    while True:
        try:
            store.wait([f"{name} done"], timedelta(seconds=beat))
            break
        except dist.DistStoreError:  # not yet
            now = store.add(f"{name} beats", 0)
        if now != beats:
            beats, heard = now, time.monotonic()
        elif time.monotonic() - heard > silence:
            raise ValueError(
                f"{name}: the main process must be heard of every {beat:g} s, got {silence:g} s of silence"
            )
    answer = json.loads(store.get(f"{name} done"))
    if "result" not in answer:
        raise ValueError(f"{name}: the main process failed: see its message")
    return answer["result"]


def broadcast(value: float, world: World) -> float:
    """Return the main process's number."""
    if world.size == 1:
        return value
    box = torch.tensor([value], dtype=torch.float64)
    if dist.get_backend() == "nccl":
        box = box.cuda()
    dist.broadcast(box, src=0)
    return float(box)


def all_reduce(value: torch.Tensor, world: World) -> torch.Tensor:
    """Sum a tensor over all processes."""
    if world.size > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value


def _shard(module: nn.Module, world: World) -> nn.Module:
    if world.size == 1:
        raise ValueError("train.shard needs several processes, got 1: start them with torchrun")
    # A decoder layer is called part by part, so each linear layer is gathered and freed by itself.
    for part in module.modules():
        if isinstance(part, nn.Linear):
            fully_shard(part)
    fully_shard(module)
    return module

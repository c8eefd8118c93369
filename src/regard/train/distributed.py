"""Processes started by torchrun: rank, collectives, DDP and FSDP2."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class World:
    """This process's rank among those that torchrun started."""

    rank: int = 0
    size: int = 1
    restarts: int = 0  # how often torchrun has restarted the processes after a failure

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

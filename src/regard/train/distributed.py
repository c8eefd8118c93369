"""One process among several: who am I, and how do gradients meet."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class World:
    """This process's place among those that `torchrun` started; alone if none did."""

    rank: int = 0
    size: int = 1
    restarts: int = 0  # how often torchrun has started the team anew after a failure

    @property
    def is_main(self) -> bool:
        """Tells whether this process is the one that writes files and speaks."""
        return self.rank == 0


def read_world() -> World:
    """Reads this process's place from the environment that torchrun made."""
    rank, world, restarts = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("TORCHELASTIC_RESTART_COUNT", "0"))
    )
    return World(rank, world, restarts)


def init_distributed(device: torch.device) -> World:
    """Joins the processes that torchrun announced in the environment."""
    place = read_world()
    if place.size > 1 and device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if place.size > 1 and not dist.is_initialized():
        store, rank, world = next(dist.rendezvous("env://"))  # pyright: ignore[reportPrivateImportUsage]
        # torchrun may keep the store when it starts a team anew: addresses of the last one must not be found in it.
        store = dist.PrefixStore(f"regard, start {place.restarts}", store)  # pyright: ignore[reportPrivateImportUsage]
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=world)
    return place


def shutdown_distributed(world: World) -> None:
    """Parts from the others."""
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()


def distribute(module: nn.Module, world: World, shard: bool) -> nn.Module:
    """Makes gradients meet: averaged over copies (DDP), or parameters cut into shards (FSDP2)."""
    if shard:
        return _shard(module, world)
    if world.size == 1:
        return module
    return DistributedDataParallel(module)


def barrier(world: World) -> None:
    """Waits until every process has come here."""
    if world.size > 1:
        dist.barrier()


def broadcast(value: float, world: World) -> float:
    """Gives every process the leader's number."""
    if world.size == 1:
        return value
    box = torch.tensor([value], dtype=torch.float64)
    if dist.get_backend() == "nccl":
        box = box.cuda()
    dist.broadcast(box, src=0)
    return float(box)


def all_reduce(value: torch.Tensor, world: World) -> torch.Tensor:
    """Adds up a tensor over all processes."""
    if world.size > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value


def _shard(learner: nn.Module, world: World) -> nn.Module:
    if world.size == 1:
        raise ValueError("train.shard needs several processes: start them with torchrun")
    from torch.distributed.fsdp import fully_shard

    # A decoder layer is called part by part, so what is put together and let go again is each linear map by itself.
    for module in learner.modules():
        if isinstance(module, nn.Linear):
            fully_shard(module)
    fully_shard(learner)
    return learner

"""What lessons 14 to 16 replaced in the running example, to run it on several GPUs; the lessons' own code."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from helpers.running_example.script import Rung


def data_parallel(model: nn.Module, gpu: Any) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def sharded(model: Any, gpu: Any) -> nn.Module:
    mesh = init_device_mesh(gpu.device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def split_layers(model: Any, gpu: Any) -> nn.Module:
    mesh = init_device_mesh(gpu.device.type, (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
    return model


def split_and_whole(model: nn.Module) -> Any:
    split = [p for p in model.parameters() if isinstance(p, DTensor)]
    return [split, [p for p in model.parameters() if not isinstance(p, DTensor)]]


def adamw_of_both(model: nn.Module) -> torch.optim.Optimizer:
    groups = [{"params": params} for params in split_and_whole(model)]
    return torch.optim.AdamW(groups, lr=1e-3, fused=True)


def clip_both(model: nn.Module, most: float = 1.0) -> None:
    split, whole = split_and_whole(model)
    lengths: list[Any] = [nn.utils.get_total_norm([p.grad for p in params]) for params in (split, whole)]
    length = torch.stack([lengths[0].full_tensor(), lengths[1]]).norm()
    for params in (split, whole):
        nn.utils.clip_grads_with_norm_(params, most, length)


#: on several GPUs, without the graph of lesson 10: the simulated GPU captures no collectives
SPREAD = {
    "14": Rung("10", {"prepare": data_parallel}, "8 GPUs, data parallel"),
    "15": Rung("14", {"prepare": sharded}, "8 GPUs, fully sharded"),
    "16": Rung(
        "10",
        {"prepare": split_layers, "optimizer": adamw_of_both, "clip": clip_both},
        "8 GPUs, layers split",
    ),
}

"""The class's script, as it was handed out, on several GPUs, or processes: data parallel, fully sharded, or by Accelerate.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # else ranks that torchrun starts again look for their dead fellows
    torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m helpers.lessons.capstone.spread --by sharded --to run

The batch of a step is the one of one process; each rank reads and trains its share. Every few steps all ranks write a
checkpoint together. A run that was killed, whenever, goes on from the newest checkpoint that is whole, also by another
way or on another number of ranks, and its losses are those of a run that nobody killed. The same text runs on GPUs, with
NCCL, and on CPUs, with gloo.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

from helpers.lessons.capstone import files, given

PICTURES = 1024
#: the class's train.py, as a module: each way below replaces how it sends gradients, and nothing else
script: Any = given.script().module()

# ------------------------------------------------------------------------------------------------ three ways


@dataclass(frozen=True)
class Way:
    """What a way of training on several ranks replaces in the script.

    wrap: the model, its average and the optimizer, ready for it. unsent: in it a backward sends no gradients: for all but
    the last part of a batch. backward: what loss.backward() is.
    """

    wrap: Callable[[Any, Any], tuple[Any, Any, torch.optim.Optimizer]]
    unsent: Callable[[Any], AbstractContextManager[Any]]
    backward: Callable[[Tensor], None] = Tensor.backward


def parallel(device: torch.device) -> Way:
    """Each rank has the whole model: DistributedDataParallel."""

    def wrap(model: Any, averaged: Any) -> tuple[Any, Any, torch.optim.Optimizer]:
        return DistributedDataParallel(model), averaged, script.make_optimizer(model)

    return Way(wrap, lambda model: model.no_sync())


def sharded(device: torch.device) -> Way:
    """Each rank has its share of every weight, gradient and moment: FSDP2. The optimizer is made of the shares."""

    def wrap(model: Any, averaged: Any) -> tuple[Any, Any, torch.optim.Optimizer]:
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for net in (model, averaged):
            for block in net.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(net, mesh=mesh)
        return model, averaged, script.make_optimizer(model)

    @contextlib.contextmanager
    def unsent(model: Any) -> Any:
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)

    return Way(wrap, unsent)


def accelerated(device: torch.device) -> Way:
    """What Hugging Face's Accelerate makes of it; it comes with the extra `models`."""
    accelerate: Any = importlib.import_module("accelerate")
    accelerator = accelerate.Accelerator(cpu=device.type == "cpu")

    def wrap(model: Any, averaged: Any) -> tuple[Any, Any, torch.optim.Optimizer]:
        prepared, optimizer = accelerator.prepare(model, script.make_optimizer(model))
        return prepared, averaged, optimizer

    return Way(wrap, accelerator.no_sync, accelerator.backward)


WAYS = {"parallel": parallel, "sharded": sharded, "accelerated": accelerated}

# ------------------------------------------------------------------------------- each rank's share of a batch


class Shares(Dataset[Any]):
    """Item i is this rank's share of the batch of step i. ValueError where the ranks' shares would differ in size."""

    def __init__(self, files: files.Files, size: Any, seed: int, steps: int) -> None:
        self.files, self.size, self.seed, self.steps = files, size, seed, steps

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> list[Tensor]:
        ranks, parts = dist.get_world_size(), self.size.parts
        if self.size.batch % (ranks * parts):
            raise ValueError(
                f"{ranks} ranks cannot share a batch of {self.size.batch} in {parts} parts alike"
            )
        rows, mirrored = script.draw(step, self.seed, len(self.files), self.size)
        mine = torch.arange(self.size.batch).view(parts, ranks, -1)[:, dist.get_rank()].flatten()
        return [*script.fetch(self.files, [rows[i] for i in mine.tolist()]), mirrored[mine]]


def accumulate(way: Way, model: Any, batch: list[Tensor], parts: int) -> Tensor:
    """The script's part of that name; the gradients are sent once. Returns this rank's loss and right answers."""
    rows = []
    for number, (pictures, labels, mirrored) in enumerate(script.pieces(batch, parts), start=1):
        with contextlib.nullcontext() if number == parts else way.unsent(model):
            logits, loss = script.forward(model, script.augment(pictures, mirrored), labels)
            way.backward(loss / parts)
        rows.append(torch.stack([loss.detach() / parts, script.count_right(logits, labels)]))
    return torch.stack(rows).sum(0)


# ----------------------------------------------------------------------------------------------- checkpoints


def state(model: Any, averaged: Any, optimizer: Any) -> dict[str, Any]:
    """All that a run goes on from, but the number of steps: names are those of the model, however it is wrapped."""
    weights, moments = states.get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "averaged": states.get_model_state_dict(averaged)}


def load(path: Path, model: Any, averaged: Any, optimizer: Any) -> int:
    """Put a checkpoint back, into whatever shares this run has. Returns after how many steps it was written."""
    saved = state(model, averaged, optimizer)
    dcp.load(saved, checkpoint_id=path)
    states.set_state_dict(
        model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"]
    )
    states.set_model_state_dict(averaged, saved["averaged"])
    return int(path.name.removeprefix("step-"))


def newest(to: Path) -> Path | None:
    """The last checkpoint that is whole: `.metadata` is its last file. As rank 0 sees it: none begins with another."""
    whole = sorted(path.parent for path in to.glob("step-*/.metadata"))
    last = [whole[-1] if whole else None]
    dist.broadcast_object_list(last)
    return last[0]


# -------------------------------------------------------------------------------------------------- the run


def start() -> torch.device:
    """This process among the others: its device. torchrun has said in the environment which rank it is."""
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    gpu = torch.cuda.is_available() and torch.cuda.device_count() >= ranks_here
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        # checkpoints are agreed upon in the host's memory, gradients in the GPU's
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    return device


def report(to: Path, step: int, rows: list[Tensor]) -> None:
    """Write down the steps up to this one: rank 0, with the mean loss and the right answers of all ranks."""
    of_all = torch.stack(rows)
    dist.all_reduce(of_all)
    if dist.get_rank() == 0:
        with (to / "losses.jsonl").open("a", encoding="utf-8") as file:
            for number, (loss, right) in enumerate(of_all.tolist(), start=step - len(rows) + 1):
                row = {"step": number, "loss": loss / dist.get_world_size(), "right": round(right)}
                file.write(json.dumps(row) + "\n")


def train(
    by: str, to: Path, size: Any, steps: int, every: int = 4, seed: int = 0,
    before_step: Callable[[int], None] = lambda step: None,
) -> None:  # fmt: skip
    """In each rank: train until that step, from the newest checkpoint in the folder on. KeyError for another way.

    size: a Size of the script. every: so many steps from one checkpoint, and from one look at the losses, to the next.
    before_step: called with the number of each step that this run takes.
    """
    device = start()
    gpu, way = SimpleNamespace(device=device), WAYS[by](device)
    torch.manual_seed(seed)
    plain = script.Net(size).to(device)
    model, averaged, optimizer = way.wrap(plain, copy.deepcopy(plain))
    path = newest(to)
    done = load(path, model, averaged, optimizer) if path else 0
    cores = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as folder:
        shares = Shares(files.draw_shapes(folder, PICTURES, size.side, seed), size, seed, steps)
        batches = DataLoader(
            Subset(shares, range(done, steps)), batch_size=None, **script.loading(cores, gpu)
        )
        rows: list[Tensor] = []
        for step, batch in enumerate(script.send(batches, gpu), start=done + 1):
            before_step(step)
            optimizer.zero_grad()
            rows.append(accumulate(way, model, batch, size.parts))
            # not the script's own: where weights are sharded, .item() of a gradient's length is that of this rank's share
            nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimizer.step()
            script.average(averaged, plain)  # whose names are those of the average, however it is wrapped
            if step % every == 0 or step == steps:
                report(to, step, rows)
                dcp.save(state(model, averaged, optimizer), checkpoint_id=to / f"step-{step:06}")
                rows.clear()


def main(before_step: Callable[[int], None] = lambda step: None) -> None:
    """What torchrun starts in each process."""
    wants = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wants.add_argument("--by", choices=WAYS, default="parallel")
    wants.add_argument("--to", type=Path, required=True, help="a folder: checkpoints and losses go there")
    wants.add_argument("--steps", type=int, default=20)
    wants.add_argument("--every", type=int, default=4, help="steps from one checkpoint to the next")
    asked = wants.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    train(asked.by, asked.to, script.Size(), asked.steps, asked.every, before_step=before_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""What torch.compile makes of a model, on the simulated GPU: the Python that Inductor wrote is run there.

The simulated GPU cannot run compiled code. But what Inductor writes for a graph is a Python function that takes memory,
gives it back, and calls kernels: `written` has Inductor write it, at the true sizes and without building or running
anything, and `run` calls that function on tensors without values. Memory is taken and freed where Inductor says so. A
kernel that it generated costs the bytes that Inductor's scheduler counts for it; products and attention cost what they
cost elsewhere.

What is not so on a real GPU: Inductor writes for the CPU here. For CUDA it fuses by the same rules (one nest of loops, one
kernel), but tunes block sizes, splits long reductions in two kernels, and may choose other products.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from helpers.compiling.backends import write
from helpers.compiling.torches import alone
from helpers.lessons.capstone.reference_repair.models import Net, Task, Way
from helpers.pytorch import private_torch
from helpers.simulator import SimGPU
from helpers.simulator.cost import roofline
from helpers.simulator.cost.roofline import Work
from helpers.simulator.operators.cuda_kernels import prefers_cudnn

aten = torch.ops.aten
_FLASH = "_scaled_dot_product_flash_attention"


@dataclass(frozen=True)
class Graph:
    """One graph as Inductor wrote it. text: its function `call`; takes: shape and type of each argument; works: of each
    generated kernel, by its name."""

    text: str
    takes: list[tuple[tuple[int, ...], torch.dtype]]
    works: dict[str, list[Work]]


@dataclass
class Written:
    """A part of the model, forward and backward. outputs: of the forward graph, without what is saved for backward."""

    graphs: list[Graph] = field(default_factory=list)
    outputs: int = 0


class _Enough(Exception):
    """It is written: nothing is to run."""


def written(part: nn.Module, inputs: list[Tensor], way: Way) -> Written:
    """What Inductor writes for this part and these inputs, on the CPU."""
    part_written = Written()

    def seen(lowered: Any, wrapper: str) -> None:
        takes = [(tuple(map(int, b.get_size())), b.get_dtype()) for b in lowered.graph_inputs.values()]
        text = textwrap.dedent(wrapper[wrapper.index("    def call(self, args):") :].partition("\n\n")[0])
        part_written.graphs.append(Graph(text, takes, _works(lowered.scheduler.nodes, text)))

    def backend(graph: Any, given: Any) -> Callable[..., Any]:
        write(graph, given, seen=seen)
        (returned,) = (node for node in graph.graph.nodes if node.op == "output")
        part_written.outputs = len(returned.args[0])

        def run(*args: Any) -> Any:
            raise _Enough

        return run

    eager = private_torch.functorch_config.patch(force_non_lazy_backward_lowering=True)
    with alone(), eager, torch.autocast("cpu", torch.bfloat16, enabled=way.bf16):
        try:
            torch.compile(part, backend=backend, fullgraph=True)(*inputs)
        except _Enough:
            return part_written
    raise AssertionError("it ran")


def _works(nodes: list[Any], text: str) -> dict[str, list[Work]]:
    """The kernels in each function that was generated: one a node of the scheduler, in their order."""
    todo = [
        n
        for n in nodes
        if type(n).__name__ in ("SchedulerNode", "FusedSchedulerNode", "OuterLoopFusedSchedulerNode")
    ]
    works: dict[str, list[Work]] = {}
    for name, given in re.findall(r"^ +(cpp_fused\w+)\((.*)\)$", text, re.M):
        args, mine = set(given.split(", ")), works.setdefault(name, [])
        while todo and args & {buffer.get_name() for buffer in todo[0].get_outputs()}:
            node = todo.pop(0)
            size = int(node.get_read_write_buffers_sizes())
            family = "normalisation" if node.is_reduction() else "elementwise"
            mine.append(Work(size // 4, size, "fp32", family, name=name.removeprefix("cpp_")))
    if todo:
        raise ValueError(f"a kernel of Inductor's has no place: {todo[0].get_name()}")
    return works


def run(graph: Graph, gpu: Any, args: list[Tensor]) -> tuple[Any, ...]:
    """The function that Inductor wrote, on the simulated GPU. args is emptied, as Inductor does."""
    machine, names = gpu._machine, dict[str, Any]()

    def kernel(name: str, *given: Any) -> None:
        for work in graph.works[name]:
            machine.launch(work.name, [roofline.load(machine, work)], None, None)

    def product(op: Any, *given: Tensor, out: Tensor, **scale: float) -> None:
        # On a GPU Inductor may lay its own buffers' rows out in whole 128 bytes (torch._inductor.config.padding_alignment_bytes)
        # and pad a product's sides to whole 16 (its pass pad_mm).
        work = roofline.work(op, given, {}, out)._replace(effort=1.0)
        roofline.launch(machine, op, [work], out.dtype)

    def empty(size: Any, stride: Any, dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device=gpu.device)

    for name in graph.works:
        names[name] = partial(kernel, name)
    names |= {
        "torch": torch,
        "empty_strided_cpu": empty,
        "reinterpret_tensor": lambda tensor, size, stride, offset=0: tensor.as_strided(size, stride, offset),
        "assert_size_stride": lambda *_: None,
        "assert_alignment": lambda *_: None,
        "extern_kernels": SimpleNamespace(
            mm=partial(product, aten.mm.default),
            addmm=partial(product, aten.addmm.default),
            bmm=partial(product, aten.bmm.default),
        ),
        "flash": partial(_attention, gpu),
        "flash_backward": partial(_attention_backward, gpu),
    }
    text = graph.text.replace(f"torch.ops.aten.{_FLASH}_for_cpu_backward.default", "flash_backward")
    exec(text.replace(f"torch.ops.aten.{_FLASH}_for_cpu.default", "flash"), names)
    return tuple(names["call"](None, args))


def _attention(
    gpu: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, **how: Any
) -> Any:
    """By the kernel that the card's PyTorch takes (`cuda_kernels.attention`)."""
    if prefers_cudnn(gpu.card.capability):
        return aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, dropout, causal)[:2]
    return aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal)[:2]


def _attention_backward(
    gpu: Any, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, dropout: float, causal: bool, **how: Any
) -> Any:  # fmt: skip
    none, lengths = torch.empty(0, device=q.device), (q.shape[-2], k.shape[-2])
    if prefers_cudnn(gpu.card.capability):
        return aten._scaled_dot_product_cudnn_attention_backward(
            grad, q, k, v, out, sums, none, none, none, none, none, *lengths, dropout, causal
        )
    return aten._scaled_dot_product_flash_attention_backward(
        grad, q, k, v, out, sums, none, none, *lengths, dropout, causal, none, none
    )


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Written, gpu: Any, *tensors: Tensor) -> Any:
        ctx.part, ctx.gpu = part, gpu
        left = list(tensors)
        args = [_take(left, *taken) for taken in part.graphs[0].takes]
        outs = run(part.graphs[0], gpu, args)
        given, ctx.saved = outs[: part.outputs], list(outs[part.outputs :])
        ctx.wanted = [(tuple(t.shape), t.dtype) if t.requires_grad else None for t in tensors]
        ctx.mark_non_differentiable(*given[1:])
        return given if len(given) > 1 else given[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved, ctx.saved = ctx.saved, None
        graph = ctx.part.graphs[1]
        left = [
            g for g in run(graph, ctx.gpu, [*saved, *grads[: len(graph.takes) - len(saved)]]) if g is not None
        ]
        del saved
        return (None, None, *[_take(left, *wanted) if wanted else None for wanted in ctx.wanted])


def _take(left: list[Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The first of them that looks so: without values, two that look alike are alike."""
    place = next(i for i, t in enumerate(left) if (tuple(t.shape), t.dtype) == (shape, dtype))
    return left.pop(place)


def parts(task: Task, way: Way) -> list[Written]:
    """A block, the last one, and what comes behind it."""
    with torch.device("meta"):
        net = Net(replace(task, layers=2), way)
    net.to_empty(device="cpu")
    features = torch.empty(task.batch, task.context, task.width, requires_grad=True)
    targets = torch.zeros(task.batch, *[] if task.classes else [task.context], dtype=torch.int64)
    block = last = written(net.blocks[0], [features], way)
    if net.blocks[-1].first:
        last, features = written(net.blocks[-1], [features], way), features.detach()[:, :1].requires_grad_()
    return [block, last, written(net.leave, [features, targets], way)]


@lru_cache(maxsize=8)
def parts_of(task: Task, way: Way) -> list[Written]:
    """The same from a process of its own: the compiler would see the simulated GPU, and stay loaded in this one."""
    command, asked = (
        [sys.executable, "-m", "helpers.lessons.capstone.reference_repair.inductor"],
        pickle.dumps((task, way)),
    )
    done = subprocess.run(command, input=asked, capture_output=True, cwd=Path(__file__).parents[4])
    if done.returncode:
        raise RuntimeError(f"Inductor could not write this: {done.stderr.decode(errors='replace')[-2000:]}")
    parts: list[Written] = pickle.loads(done.stdout)
    return parts


def reduced_way(way: Way) -> Way:
    """What of it the compiler sees."""
    return Way(way.attention, way.activation, bf16=way.bf16, first_only=way.first_only, compiled=True)


def on_simulated(task: Task, way: Way, net: Net, gpu: SimGPU) -> None:
    """In place of torch.compile, on the simulated GPU."""
    block, last, leave = parts_of(task, reduced_way(way))
    *blocks, end = net.blocks
    for part, made in [*((b, block) for b in blocks), (end, last), (net.leave, leave)]:
        part.forward = partial(_call, made, gpu, list(part.parameters()))


def _call(made: Written, gpu: SimGPU, weights: list[Tensor], *inputs: Tensor) -> Any:
    return _Compiled.apply(made, gpu, *inputs, *weights)


if __name__ == "__main__":
    from helpers.lessons.capstone.reference_repair import inductor

    sys.stdout.buffer.write(pickle.dumps(inductor.parts(*pickle.load(sys.stdin.buffer))))

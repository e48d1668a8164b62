"""A simulated run that cannot be told from a counted one, and has true values.

    with with_twins(simulate("H100")) as gpu:
        …                      # tensors of gpu.device are on `meta`, as always; each has a twin on the CPU

Whatever a program asks of such a tensor (device, dtype, shape) is what it would see where steps are counted; what it reads
(`.item()`, `.cpu()`) is computed. So a program that does its work only where nobody counts has to do it here too, and one that
leaves work out where it is counted learns something else here. (`simulate(..., values=True)` is the other way round: its
tensors lie on the CPU, and its GPU's device says so.)

Twins of bfloat16 and float16 are float32: a training comes out as it would in float32.

Of several ranks, the others hold OTHERS times what this one holds, whatever they exchange: who throws away what came in, has
other gradients than who does not.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from helpers.own_script.true_values import PUTS
from helpers.pytorch import private_torch
from helpers.pytorch.attention_on_cpu import ATTENTION
from helpers.pytorch.dispatch_mode import CallMode
from helpers.pytorch.tensors import tensors
from helpers.pytorch.waiting import lists_in
from helpers.ranks.collectives import kind_of
from helpers.simulator.operators.dispatch import Dispatch
from helpers.simulator.operators.shapes import map_leaves
from helpers.simulator.world.collectives import fill, sides

_HALVES = (torch.bfloat16, torch.float16)
#: so many times what this rank holds
OTHERS = 3
_MAKES = (torch.tensor, torch.as_tensor, torch.asarray)


class Twins:
    """The CPU's memory behind each storage on `meta`."""

    def __init__(self) -> None:
        self._memory: dict[int, torch.Tensor] = {}

    def __call__(self, tree: Any) -> Any:
        """The same nest with every tensor's twin in its place; tensors of the host stand for themselves."""
        return map_leaves(tree, self._one)

    def knows(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._memory

    def _one(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        if isinstance(leaf, torch.dtype):
            return _wide(leaf)
        if not isinstance(leaf, torch.Tensor) or not leaf.is_meta:
            return leaf
        storage, dtype = leaf.untyped_storage(), _wide(leaf.dtype)
        memory = self._memory.get(storage._cdata)
        if memory is None:
            memory = torch.zeros(storage.nbytes() // leaf.element_size(), dtype=dtype)
            self._memory[storage._cdata] = memory
            weakref.finalize(storage, self._memory.pop, storage._cdata, None).atexit = False
        memory = memory if memory.dtype == dtype else memory.view(dtype)
        return memory.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())

    def made(self, out: Any, real: Any) -> None:
        """Keep what an operator has computed: `out` is what the program gets of it."""
        for tensor, value in zip(tensors(out), tensors(real), strict=False):
            if tensor.is_meta and not self.knows(tensor):
                self._one(tensor).copy_(_as_long(value, tensor))
            elif not tensor.is_meta and tensor is not value:
                tensor.copy_(value)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _HALVES else dtype


def _as_long(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What a mask has selected is shorter than the simulation takes it for: its last row stands for the rest."""
    missing = len(like) - len(value) if like.dim() and value.dim() == like.dim() else 0
    return torch.cat([value, *[value[-1:]] * missing]) if missing > 0 and len(value) else value


class _Dispatch(Dispatch):
    """Each operator on the simulated GPU, and for real on the twins."""

    twins: Twins

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if func.namespace == "c10d" and (kind := kind_of(str(func._schema.name).partition("::")[2])):
            given = dict(zip([a.name for a in func._schema.arguments], args, strict=False)) | (kwargs or {})
            group: Any = dist.group.WORLD
            ins, outs = sides(kind, given, group)
            with private_torch.disable_current_modes(), torch.no_grad():
                held = [1 if rank == group.rank() else OTHERS for rank in range(group.size())]
                fill(kind, given, self.twins(ins), self.twins(outs), held, group.rank())
        return out

    def run(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        out, seen = super().run(func, args, kwargs)
        if func.is_view or not any(t.is_meta for t in tensors([args, kwargs, out])):
            return out, seen
        with private_torch.disable_current_modes(), torch.no_grad():
            real = self.guard(self._for_real, func, args, kwargs)
            # a number, which the program asked for
            if not isinstance(real, torch.Tensor | list | tuple | None):
                return real, seen
            self.guard(lambda _: self.twins.made(out, real), func)
        return out, seen

    def _for_real(self, func: Any, args: Any, kwargs: Any) -> Any:
        packet, twins = func._overloadpacket, self.twins
        args, kwargs = twins(args), {k: twins(v) for k, v in kwargs.items() if k != "pin_memory"}
        if packet in ATTENTION:
            return ATTENTION[packet](*args, **kwargs)
        if packet in PUTS and any(t.dtype == torch.bool for t in tensors(args[1])) and args[2].dim():
            rows = int(args[1][0].sum())
            args = (args[0], args[1], args[2][:rows] if len(args[2]) > rows else args[2], *args[3:])
        return func(*args, **kwargs)


class _Calls(CallMode):
    """Numbers that become tensors without the dispatcher."""

    def __init__(self, twins: Twins) -> None:
        super().__init__()
        self.twins = twins

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, twins = kwargs or {}, self.twins
        out = func(*args, **kwargs)
        makes = func in _MAKES and isinstance(out, torch.Tensor) and out.is_meta
        picks = func is torch.Tensor.__getitem__ and lists_in(args[1])
        puts = func is torch.Tensor.__setitem__ and lists_in(args[1])
        if makes or puts or picks:
            with private_torch.disable_current_modes(), private_torch.DisableTorchFunction(), torch.no_grad():
                if makes:
                    twins(out).copy_(func(*twins(args), **twins(kwargs)))
                elif picks:
                    twins(out).copy_(twins(args[0])[twins(args[1])])
                else:
                    twins(args[0])[twins(args[1])] = twins(args[2])
        return out


@contextmanager
def with_twins(gpu: Any) -> Iterator[Any]:
    """The GPU, in use, its tensors with true values behind them."""
    twins = Twins()
    kind = type("_Dispatch", (_Dispatch,), {"twins": twins})
    with mock.patch("helpers.simulator.gpu.Dispatch", kind), gpu, _Calls(twins):
        yield gpu

"""Operators become launches, copies and waits on the machine: a dispatch mode sees every aten operator on its tensors.

Nothing in dispatch raises of its own accord: an exception there can end the process while autograd builds its
graph. What goes wrong is recorded in gpu.faults, and raised when the `with gpu:` block ends. PyTorch's own errors
(a shape that does not fit) pass through as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from helpers.pytorch import private_torch
from helpers.pytorch.dispatch_mode import Mode, Unseen, unwraps
from helpers.pytorch.tensors import tensors
from helpers.pytorch.waiting import FACTORISATIONS, INDEXING, WRITES, counts_a_mask
from helpers.simulator.cost import roofline
from helpers.simulator.machine import Machine
from helpers.simulator.operators import cuda_kernels, shapes

if TYPE_CHECKING:
    from helpers.simulator.operators.backward import Backward
    from helpers.simulator.world.traffic import Traffic
    from helpers.simulator.written.profile import Notes

aten = torch.ops.aten
_TWO_DEVICES = (
    "CUDA raises 'Expected all tensors to be on the same device'. Move it first: t.to(gpu.device), and a model "
    "with model.to(gpu.device)"
)
_FILLS = {f.Tensor: f.Scalar for f in (aten.masked_fill, aten.masked_fill_)}
# Whose lengths stay in host memory on CUDA too.
_HOST_LENGTHS = {f"aten._{name}" for name in (
    "pack_padded_sequence", "pack_padded_sequence_backward", "ctc_loss", "ctc_loss_backward",
)}  # fmt: skip
_COPY = aten.copy_.default
# What the host needs the result of, so that one is made up.
_ANSWERED = {
    *(aten._local_scalar_dense, aten.equal, aten.allclose, aten._to_copy, aten.copy_),
    *(aten._unique2, aten.masked_select),
}


class _Operator(NamedTuple):
    """What never changes about one operator, and would cost more to ask for than to keep.

    composite: it is made of other operators only, on a GPU too; answered: the host may need its result; indexes: it is
    one of INDEXING; sized_by_values: values decide how long its result is; by_number: its
    overload that takes a number for a tensor, None where that is no matter.
    """

    packet: Any
    name: str
    composite: bool
    answered: bool
    indexes: bool
    writes: bool
    sized_by_values: bool
    factorises: bool
    on_lists: bool
    by_number: Any


@cache
def _namespace(func: Any) -> str:
    return str(func.namespace)


@cache
def _operator(func: Any) -> _Operator:
    packet, name = func._overloadpacket, str(func._overloadpacket)
    return _Operator(
        packet,
        name,
        _composite(func),
        packet in _ANSWERED,
        name in INDEXING,
        name in WRITES,
        torch.Tag.dynamic_output_shape in func.tags,
        name in FACTORISATIONS,
        cuda_kernels.is_list_operator(func),
        _FILLS.get(func),
    )


class Dispatch(Mode):
    """Below autograd: every aten operator, forward, backward and optimizer. traffic: torch.distributed's calls, in a
    world of several ranks; notes: what a profiler asked for."""

    def __init__(self, machine: Machine, notes: Notes, traffic: Traffic | None = None) -> None:
        super().__init__()
        if "torch._dynamo" in sys.modules:
            self.hide_from_dynamo()
        self.machine, self._notes, self._traffic = machine, notes, traffic
        self._backward: Backward = machine.backward
        self._zeros: dict[torch.dtype, torch.Tensor] = {}
        self.puts_number = False  # whether an assignment of a Python number is running (see `calls`)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, traffic, namespace = kwargs or {}, self._traffic, _namespace(func)
        if types and any(kind.__name__ == "FakeTensor" for kind in types):
            return func(*args, **kwargs)  # somebody works out shapes, as DTensor does
        if types and any(unwraps(kind) for kind in types):
            return NotImplemented  # nested tensors and the like: what is inside comes back here
        if traffic is not None:
            if namespace in ("c10d", "_c10d_functional"):
                return traffic.call(self.guard, func, args, kwargs)
            if namespace == "fsdp":
                with self:
                    out = traffic.copies(func, args, kwargs)
                if out is not NotImplemented:
                    return out
        if namespace != "aten":
            out = func(*args, **kwargs)
            if namespace == "profiler":
                self.guard(self._annotate, func, args)
            return out
        if traffic is not None:
            if traffic.reducing:
                traffic.reduced(args)
            if func is _COPY and (same := traffic.comes_back(args)) is not None:
                out = self._in_its_stream(func, args, kwargs)
                with Unseen():
                    args[0].copy_(same)
                return out
        return self._in_its_stream(func, args, kwargs)

    def _in_its_stream(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One aten operator: in a backward pass, in the stream of its forward pass."""
        if _operator(func).composite:
            with self:  # these arrive whole only in inference mode: take them apart, as elsewhere
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        machine, backward, started = self.machine, self._backward, self.machine.line.started
        before = self.guard(backward.enter, func, args, kwargs) if backward.several else None
        if before is None:
            return self._watched(func, args, kwargs)
        out = None
        try:
            out = self._watched(func, args, kwargs)
        finally:
            launched = machine.line.started != started
            self.guard(backward.leave, func, before, launched, args, kwargs, out)
            machine.current = before
        return out

    def _watched(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One operator, and who touched which memory."""
        line = self.machine.line
        started = line.started
        out, seen = self.run(func, args, kwargs)
        if line.started != started:
            self.guard(self._touched, func, *seen)
        elif line.races.watches_host:
            self.guard(line.races.on_host, func, *seen)
        return out

    def _touched(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self.machine.races.operator(self.machine.current.number, func, args, kwargs, out)

    def run(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        """One operator on tensors without values: (result, what the machine saw of arguments and result)."""
        op = _operator(func)
        if op.answered:
            before = self.guard(self.answer, func, args, kwargs)
            if before is not None:
                return before[0], (args, kwargs, before[0])
        given = args
        if op.by_number is not None and args[2].device.type == "cpu" and not args[2].dim():
            # allowed on CUDA, and refused by the rule for meta: the number is an argument of the kernel
            func, args = op.by_number, (*args[:2], args[2].item())
        try:
            out = shapes.run(func, args, kwargs)
        except RuntimeError as error:
            if "is not on the expected device" in str(error):
                error.add_note(_TWO_DEVICES)
            raise
        if op.packet in (aten.all, aten._is_all_true):
            out._holds = True  # what a program checks is so
        self.guard(self.machine.memory.produced, func, args, kwargs, out)
        self.guard(self.account, func, args, kwargs, out)
        return out, (given, kwargs, out)

    def _annotate(self, func: Any, args: Any) -> None:
        """record_function enters with its name and leaves with a handle."""
        if "enter" in func._schema.name:
            self._notes.enter(str(args[0]))
        elif "exit" in func._schema.name:
            self._notes.leave()

    def guard(self, step: Callable[..., Any], func: Any, *rest: Any) -> Any:
        try:
            return step(func, *rest)
        except Exception as error:  # see the module's first lines
            message = f"{func._overloadpacket}: {type(error).__name__}: {error}"
            odd = [t for t in tensors(rest) if t.layout is not torch.strided]
            if odd:
                message = (
                    "sparse tensors are not simulated: their time and memory are missing from this run. Use dense "
                    "ones on the simulated GPU (nn.Embedding and nn.EmbeddingBag: sparse=False)"
                )
            if not odd or (any(t.is_meta for t in odd) and message not in self.machine.faults):
                self.machine.faults.append(message)
            return None

    def answer(self, func: Any, args: Any, kwargs: Any) -> tuple[Any] | None:
        """Operators whose result the host needs: wait, and make one up (zeros, "equal", "all selected")."""
        machine, packet = self.machine, func._overloadpacket
        source = args[1] if packet is aten.copy_ else args[0] if args else None
        if not isinstance(source, torch.Tensor) or not source.is_meta:
            return None
        if packet is aten._local_scalar_dense:
            machine.copy(str(packet), "copy d2h", source, pinned=True, non_blocking=False)
            number = self._zero(source.dtype)
            return (func(number if not hasattr(source, "_holds") else number == number),)
        if packet in (aten.equal, aten.allclose):
            todo = roofline.Work(source.numel(), 2 * source.nbytes, "fp32")
            roofline.launch(machine, func, [todo], source.dtype)
            machine.sync(str(packet))
            zero = self._zero(source.dtype)
            return (func(zero, zero),)
        if packet is aten._to_copy and torch.device(kwargs.get("device") or "meta").type == "cpu":
            non_blocking = bool(kwargs.get("non_blocking"))
            with Unseen():
                zeros = self._zero(source.dtype).expand(source.shape)
            out = func(zeros, **kwargs)
            # With non_blocking PyTorch takes a pinned target, and hands it out before the bytes have arrived.
            machine.copy(str(packet), "copy d2h", source, pinned=non_blocking, non_blocking=non_blocking)
            return (machine.pinned.add(out) if non_blocking else out,)
        if packet is aten.copy_ and args[0].device.type == "cpu":
            non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            machine.copy(str(packet), "copy d2h", source, args[0] in machine.pinned, non_blocking)
            return (func(args[0], self._zero(args[0].dtype)),)
        if packet in (aten._unique2, aten.masked_select):  # all of them differ, or are selected
            sizes = [source.numel() * bool(wanted) for wanted in [*args[2:], False, False][:2]]
            with Unseen():
                made: Any = torch.empty(source.numel(), dtype=source.dtype, device="meta")
                if packet is aten._unique2:
                    made = (made, *(torch.empty(n, dtype=torch.int64, device="meta") for n in sizes))
            machine.memory.produced(func, args, kwargs, made)
            self.account(func, args, kwargs, made)
            return (made,)
        return None

    def account(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        machine, op = self.machine, _operator(func)
        packet, name, inputs, results = op.packet, op.name, tensors((args, kwargs)), tensors(out)
        on_host = [t for t in inputs if not t.is_meta]
        result = next((t for t in results if t.is_meta), None)
        if len(on_host) == len(inputs) and result is None:
            return  # the host's own business
        if packet is aten._linalg_check_errors:
            machine.copy("aten._local_scalar_dense", "copy d2h", args[0], True, non_blocking=False)
            return
        if not roofline.launches_kernel(func, out):
            machine.line.spend(name, "operator", machine.card.assumptions.view_s)
            return
        on_host = [t for t in on_host if t.device.type == "cpu"]
        if packet in (aten._to_copy, aten.copy_) and on_host:
            non_blocking = kwargs.get("non_blocking") or (packet is aten.copy_ and len(args) > 2 and args[2])
            pinned = on_host[0] in machine.pinned
            machine.copy(name, "copy h2d", on_host[0], pinned, bool(non_blocking))
            return
        fills = op.writes and self._fills(func, args)
        for tensor in on_host:
            if fills:
                continue  # one number on its way into a mask: an argument of masked_fill_'s kernel
            if op.indexes:
                machine.copy(name, "copy h2d", tensor, pinned=False, non_blocking=False)
            elif tensor.dim() and name not in _HOST_LENGTHS:
                # (A number in a CPU tensor travels as a kernel's argument.)
                machine.faults.append(
                    f"{packet}: a CPU tensor of shape {tuple(tensor.shape)} among GPU tensors; {_TWO_DEVICES}"
                )
        if result is None and inputs:
            result = inputs[0]
        dtype = result.dtype if result is not None else None
        if packet in (aten.masked_fill, aten.masked_fill_):
            for value in tensors([args[2:3], kwargs.get("value")]):
                if value.is_meta:  # ATen/native/cuda/Indexing.cu: masked_fill_(mask, value.item())
                    machine.copy("aten._local_scalar_dense", "copy d2h", value, True, non_blocking=False)
        if op.on_lists:
            todo = roofline.work(func, args, kwargs, out)
            works = [todo.part(share) for share in cuda_kernels.launches(func, args, kwargs, out)]
        else:
            works = roofline.kernels(func, args, kwargs, out)
        roofline.launch(machine, func, works, dtype)
        if op.factorises or kwargs.get("check_errors") or self._must_count(func, args):
            # The host must learn how many, to allocate the result, or whether it went well.
            machine.sync(name)

    def _must_count(self, func: Any, args: Any) -> bool:
        """Whether the size of what is selected depends on values."""
        op = _operator(func)
        if not op.indexes:
            return op.sized_by_values
        # A number is in host memory where the program wrote it, and its mask on the device.
        alike = op.writes and any(index.is_meta for index in tensors(args[1]))
        number = alike and (args[2].device.type == "cpu" or self.puts_number)
        return counts_a_mask(op.name, args, number_on_device=not number)

    def _fills(self, func: Any, args: Any) -> bool:
        """Whether one number is put into a mask, which makes it masked_fill_: the number is its kernel's argument."""
        masks = any(str(index.dtype) in ("torch.bool", "torch.uint8") for index in tensors(args[1]))
        return masks and not self._must_count(func, args)

    def _zero(self, dtype: torch.dtype) -> torch.Tensor:
        """A CPU zero, made unseen by any other mode that is counting."""
        if dtype not in self._zeros:
            with Unseen():
                self._zeros[dtype] = torch.zeros((), dtype=dtype)
        return self._zeros[dtype]


def _composite(func: Any) -> bool:
    """Whether it is made of other operators only, on a GPU too."""
    if func._overloadpacket is getattr(aten, "_fused_rms_norm", None):
        return False  # one kernel there (cuda_kernels.rms_norm)
    has_kernel = private_torch.has_kernel
    return has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(func.name(), "Meta")

"""True values beside the simulated card: each operator on the card runs on host memory too, unseen and uncharged.

A tensor on the card is a meta tensor; its values lie in a storage of the host's that belongs to its storage. What the host
asks for, as `.item()`, `.cpu()` or the length of `nonzero()`, is answered from there. Random numbers of the card have a
generator of their own, as on a real one.

An operator that a CPU cannot run loses the values of its results, from there on: they read as 0 again, and `lost` names the
line. Attention drops nothing out. A replayed graph does not run the values again.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from helpers.own_script.places import NOWHERE, Place, running
from helpers.pytorch import private_torch
from helpers.pytorch.attention_on_cpu import ATTENTION
from helpers.pytorch.dispatch_mode import Mode, Unseen, unwraps
from helpers.pytorch.tensors import tensors
from helpers.pytorch.waiting import lists_in
from helpers.simulator import SimGPU
from helpers.simulator.operators.shapes import map_leaves

aten = torch.ops.aten
_HOST, _META = torch.device("cpu"), torch.device("meta")
_LISTS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor})
#: operators that write where a mask says, whose third argument is as long as the mask selects
PUTS = frozenset({aten.index_put, aten.index_put_, aten._index_put_impl_})


class _Lost(Exception):
    """No true value is known for a tensor."""


class TrueValues(Mode):
    """Below autograd and above the simulated GPU, which sees each operator as it would without this.

    lost: the line and the operator from which on values are not known, with why.
    """

    def __init__(self, gpu: SimGPU) -> None:
        super().__init__()
        self._memory = gpu._machine.memory
        self._true: dict[int, torch.UntypedStorage] = {}  # a storage on the card → its bytes
        self._random = torch.Generator().get_state()
        self._lists: list[
            torch.Tensor
        ] = []  # x[[0, 2]]: what a call indexes with, which becomes a tensor unseen
        self.lost: dict[tuple[Place, str], str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if types and any(kind.__name__ == "FakeTensor" for kind in types):
            return func(*args, **kwargs)  # somebody works out shapes
        if types and any(unwraps(kind) for kind in types):
            return NotImplemented
        if func.namespace != "aten" or not _on_card(args, kwargs):
            return func(*args, **kwargs)
        packet = func._overloadpacket
        if packet is aten.copy_ and not args[0].is_meta:
            return self._copied_back(func, args, kwargs)
        true = self._computed(func, args, kwargs)
        if packet in PUTS:
            args = _as_long_as_masks(args)
        out = func(*args, **kwargs)
        if packet in (aten._local_scalar_dense, aten.equal):
            return out if true is None else true
        with Unseen(), private_torch.DisableTorchFunction(), torch.no_grad():
            return self._matched(func, args, kwargs, out, true)

    def asked(self, func: Any, args: Any) -> None:
        """A call above autograd is about to run: lists among its indices are kept."""
        self._lists = []
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            with Unseen(), private_torch.DisableTorchFunction():
                self._lists = [torch.tensor(found) for found in lists_in(args[1]) if isinstance(found, list)]

    def told(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """A call above autograd has made `out`: values of a list become a tensor on the card without an operator."""
        if func not in _LISTS or not isinstance(out, torch.Tensor) or not out.is_meta:
            return
        data = kwargs.get("data", args[-1] if args else None)
        if not isinstance(data, torch.Tensor):
            with Unseen(), private_torch.DisableTorchFunction(), torch.no_grad():
                self._adopt(out.data, torch.tensor(data, dtype=out.dtype))

    def printed(self, tensor: torch.Tensor) -> str | None:
        """What Python prints of a tensor on the card, where its values are known."""
        true = self.read(tensor.detach())
        if true is None:
            return None
        with Unseen(), private_torch.DisableTorchFunction():
            return f"{repr(true)[:-1]}, device='cuda:0')"

    def read(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The true values of a tensor on the card, where they are known."""
        with Unseen(), private_torch.DisableTorchFunction(), torch.no_grad():
            try:
                return self._of(tensor)
            except _Lost:
                return None

    def seeded(self, seed: int) -> None:
        """torch.manual_seed, for the card's own generator."""
        self._random = torch.Generator().manual_seed(seed).get_state()

    # ------------------------------------------------------------------------------------ one operator

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator's result on true values; None where it cannot be had."""
        with Unseen(), private_torch.DisableTorchFunction(), torch.no_grad(), private_torch.DisableAutocast():
            try:
                own = ATTENTION.get(func._overloadpacket)
                if own is not None:
                    return own(*map_leaves(args, self._known), **kwargs)
                given, named = map_leaves(args, self._host), map_leaves(kwargs, self._host)
                if torch.Tag.nondeterministic_seeded not in func.tags:
                    return func(*given, **named)
                hosts = torch.get_rng_state()
                torch.set_rng_state(self._random)
                try:
                    return func(*given, **named)
                finally:
                    self._random = torch.get_rng_state()
                    torch.set_rng_state(hosts)
            except _Lost:
                pass
            except (
                Exception
            ) as problem:  # of a kernel that the CPU has not: no more is lost than these values
                where = running() or NOWHERE
                self.lost.setdefault((where, func._schema.name), str(problem).splitlines()[0])
            self._forget(func, args)
        return None

    def _matched(self, func: Any, args: Any, kwargs: Any, out: Any, true: Any) -> Any:
        """The simulated result, with its true values, and as long as they are."""
        if isinstance(out, torch.Tensor):
            if not isinstance(true, torch.Tensor):
                return out
            if not out.is_meta:
                out.copy_(true)
                return out
            if out.shape != true.shape:  # values say how long it is
                del out
                out = torch.empty_strided(true.shape, true.stride(), dtype=true.dtype, device=_META)
                self._memory.produced(func, args, kwargs, out)
            self._adopt(out, true)
        elif isinstance(out, (list, tuple)) and isinstance(true, (list, tuple)):
            return type(out)(self._matched(func, args, kwargs, *pair) for pair in zip(out, true, strict=True))
        return out

    def _copied_back(self, func: Any, args: Any, kwargs: Any) -> Any:
        """target.copy_(on the card): the bytes arrive in host memory."""
        out, true = func(*args, **kwargs), self.read(args[1])
        if true is not None:
            with Unseen(), private_torch.DisableTorchFunction(), torch.no_grad():
                args[0].copy_(true)
        return out

    # ------------------------------------------------------------------------------------ tensors

    def _host(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self._of(leaf) if leaf.is_meta else leaf
        return _HOST if isinstance(leaf, torch.device) and leaf.type == "meta" else leaf

    def _known(self, leaf: Any) -> Any:
        """The same for a kernel that does without some: of numbers that only a GPU's kernel draws, none are kept."""
        try:
            return self._host(leaf)
        except _Lost:
            return None

    def _of(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._true and self._lists and self._lists[0].shape == tensor.shape:
            self._adopt(tensor, self._lists.pop(0))
        true = self._true.get(storage._cdata)
        if true is None:
            raise _Lost
        flat = torch.empty(0, dtype=tensor.dtype)
        return flat.set_(true, tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload, no-any-return]

    def _adopt(self, tensor: torch.Tensor, true: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self._true:  # a view, or written in place: its bytes are there
            return
        alike = (tensor.dtype, tensor.stride(), 0) == (true.dtype, true.stride(), true.storage_offset())
        if not (alike and true.untyped_storage().nbytes() >= storage.nbytes()):
            held = torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage()
            flat = torch.empty(0, dtype=tensor.dtype)
            laid = flat.set_(held, tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload]
            true = laid.copy_(true)
        self._true[storage._cdata] = true.untyped_storage()
        weakref.finalize(storage, self._true.pop, storage._cdata, None).atexit = False

    def _forget(self, func: Any, args: Any) -> None:
        """What the operator would have written is not known any more."""
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in tensors(value):
                    self._true.pop(tensor.untyped_storage()._cdata, None)


def _on_card(args: Any, kwargs: Any) -> bool:
    if any(tensor.is_meta for tensor in tensors((args, kwargs))):
        return True
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "meta"


def _as_long_as_masks(args: Any) -> Any:
    """x[mask] = values: for the simulated GPU, which takes every mask for full, as many values as the mask has places."""
    masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
    values = args[2]
    if not masks or not values.dim() or values.shape[0] == 1 or not values.is_meta:
        return args
    with Unseen(), torch.no_grad():
        full = torch.empty((masks[0].numel(), *values.shape[1:]), dtype=values.dtype, device=_META)
    return (*args[:2], full, *args[3:])

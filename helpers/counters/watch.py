"""The dispatch mode that sees every operator and follows every storage made."""

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from helpers.counters.ledger import Ledger
from helpers.counters.operators import Operator, filled, operator, waits
from helpers.pytorch import private_torch
from helpers.pytorch.dispatch_mode import Mode
from helpers.pytorch.private_torch import DisableTorchFunction
from helpers.pytorch.tensors import tensors

# of the class: an answer could give its storage a method of its own
_nbytes, _resizable = torch.UntypedStorage.nbytes, torch.UntypedStorage.resizable
Storages = dict[int, tuple[torch.UntypedStorage, int]]  # identity → storage, bytes


#: what takes part in most operators, and is neither a parameter nor a subclass with a dispatch of its own
_PLAIN = frozenset({torch.Tensor})


#: where code lies that is no answer's
_OTHERS = (
    *{str(Path(str(module.__file__)).parent) + os.sep for module in (torch, np, os)},
    str(Path(__file__).parents[1]) + os.sep,
    "<frozen ",
)
_STAND_INS = str(Path(__file__).with_name("standins.py"))


def calls_back() -> bool:
    """Whether what a stand-in stands for (:mod:`helpers.counters.standins`) has called code of an answer.

    That counts as everywhere else: a tensor is printed by PyTorch's own code, but a subclass's `__torch_function__`, or a
    number of a class of its own among the options for printing, could do all the work meanwhile.
    """
    of_an_answer = False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if of_an_answer and code.co_name == "stand_in" and code.co_filename == _STAND_INS:
            return True
        of_an_answer = of_an_answer or not code.co_filename.startswith(_OTHERS)
        frame = frame.f_back
    return False


class _Threads(threading.local):
    def __init__(self) -> None:
        self.watches: list[Watch] = []


class Watch(Mode):
    """Writes into ``ledger`` while it is entered. Its own errors go to ``failure``: raised in a dispatch mode, an
    exception can abort the whole process."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.failure: Exception | None = None
        self.unknown_flops: set[str] = set()
        # How many of these calls are going on:
        self.silent = 0  # print(t), t.tolist(): nothing inside counts
        self.no_sync = 0  # t.cpu(): has been counted as one sync
        self.by_list = 0  # x[[0, 2]]: its lists have been counted
        self.assigning = 0  # x[i] = 1.0: torch wraps the number in a tensor of its own, which does not count
        self.without_hooks = 0  # torch.func differentiates: nobody tells what it saves
        self._number: Storages = {}  # where that number is
        self._alive: dict[int, tuple[weakref.ref[Any], int]] = {}  # storages made here: → bytes
        self._saved: dict[int, tuple[weakref.ref[Any], int]] = {}  # storages saved for backward: → bytes
        self._parameters: dict[int, weakref.ref[Any]] = {}  # storages of nn.Parameters

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in ("prim", "profiler") or self.silent and not calls_back():
            return func(*args, **kwargs)
        for kind in types:
            if kind not in _PLAIN and _wraps_others(kind):
                return NotImplemented  # a DTensor unpacks itself first; the operators on its shard then come here
        op = operator(func)
        if op.composite:  # these arrive whole only in inference mode: take them apart, as elsewhere
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        given, before = self._safely(self._look, args, kwargs) or ([], {})
        if op.custom and all(tensor.device.type == "cpu" for tensor in given):
            with self:  # run its kernel under our eyes
                result = func.redispatch(
                    private_torch.DispatchKeySet(private_torch.DispatchKey.CPU), *args, **kwargs
                )
            self._safely(self._compute, op, args, kwargs, result)
            return result
        try:
            result = func(*args, **kwargs)
        except Exception:
            self._safely(self._refused, op, given)
            raise
        self._safely(self._record, op, before, args, kwargs, result)
        return result

    def _safely(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            with DisableTorchFunction():
                return step(*args)
        except Exception as error:
            self.failure = self.failure or error
            return None

    def _look(self, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], Storages]:
        given = tensors((args, kwargs) if kwargs else args)
        for tensor in given:
            if type(tensor) not in _PLAIN and isinstance(tensor, torch.nn.Parameter):
                self._parameter(tensor)
        return given, _held(given)

    def _refused(self, op: Operator, given: list[torch.Tensor]) -> None:
        """The CPU's kernel has looked at values, and its text can name them; a GPU's would not even raise here."""
        if op.counts and any(not tensor.is_meta for tensor in given):
            self.ledger.waited(f"an error of {op.name}")

    def _record(self, op: Operator, before: Storages, args: Any, kwargs: Any, result: Any) -> None:
        after = _storages(result)
        made = {key: value for key, value in after.items() if key not in before and key not in self._alive}
        if op.name == "aten.lift_fresh":
            # torch.tensor([...]) made it before any operator ran. NumPy's memory cannot be resized: not new.
            made = {k: v for k, v in before.items() if k not in self._alive and _resizable(v[0])}
            if self.assigning:
                self._number, made = after, {}
        for storage, nbytes in made.values():
            self._allocate(op.name, storage, nbytes, new=True)
        for key, (storage, nbytes) in _written(op, args, kwargs).items():
            # a bytearray, an array: memory all the same, from the first operator on that writes into it. And so is what an
            # answer has made before it was called, to write into now
            made_before = key in earlier or not _resizable(storage) and not storage.is_shared()
            if made_before and key not in self._alive:
                self._allocate(op.name, storage, nbytes)
        if op.mutable:
            for storage, nbytes in before.values():
                if _nbytes(storage) != nbytes:
                    self.resized(op.name, storage)
        if not op.counts:
            return
        view = op.view or bool(after and not op.mutable and after.keys() <= before.keys())
        fills = self.assigning and _storages(filled(op, args)).keys() & self._number
        self.ledger.ran(op.name, view, op.copy and not fills)
        no_sync = self.no_sync and not calls_back()
        if not no_sync and waits(op, args, kwargs):
            self.ledger.waited(op.name)
        elif op.mutable and not no_sync and _leaves_torch(op, before, args, kwargs):
            self.ledger.waited(f"Tensor.{op.name.removeprefix('aten.')} into NumPy's memory")
        if self.without_hooks and torch.is_grad_enabled():
            for tensor in tensors((args, kwargs, result)):
                self.save(tensor)
        self._compute(op, args, kwargs, result)

    def _compute(self, op: Operator, args: Any, kwargs: Any, result: Any) -> None:
        if op.flops is not None:
            try:
                self.ledger.computed(op.flops(*args, **kwargs, out_val=result))
            except Exception:  # a formula that does not know these shapes: said once, when the run ends
                self.unknown_flops.add(op.name)

    def _allocate(self, name: str, storage: torch.UntypedStorage, nbytes: int, new: bool = False) -> None:
        key = storage._cdata
        self._alive[key] = (weakref.ref(storage, lambda _: self._freed(key)), nbytes)
        self.ledger.allocated(name, nbytes, new)

    def _freed(self, key: int) -> None:
        self.ledger.freed(self._alive.pop(key)[1])

    def resized(self, name: str, storage: torch.UntypedStorage) -> None:
        """A storage that changes size takes a new block, then drops the old one (its contents are copied)."""
        old = self._alive.pop(storage._cdata, None)
        if _nbytes(storage):
            self._allocate(name, storage, _nbytes(storage))
        self.ledger.freed(old[1] if old else 0)

    def save(self, tensor: torch.Tensor) -> None:
        """autograd keeps ``tensor`` for backward."""
        if isinstance(tensor, torch.nn.Parameter):
            self._parameter(tensor)
        for key, (storage, nbytes) in _held([tensor]).items():
            if key not in self._parameters and key not in self._saved:
                self._saved[key] = weakref.ref(storage, self._let_go(key)), nbytes
                self.ledger.saved(nbytes)

    def _let_go(self, key: int) -> Callable[[Any], Any]:
        return lambda _: self._saved.pop(key, None)

    def _parameter(self, tensor: torch.Tensor) -> None:
        """Know a parameter's storage by; a view of it that was saved before it was known counts no longer."""
        storage = _storage(tensor)
        if storage is None or storage._cdata in self._parameters:
            return
        key = storage._cdata
        self._parameters[key] = weakref.ref(storage, lambda _: self._parameters.pop(key, None))
        if key in self._saved:
            self.ledger.saved(-self._saved.pop(key)[1])

    def stop(self) -> None:
        """Stop following storages: what dies from here on changes no count."""
        self._alive, self._saved, self._parameters, self._number = {}, {}, {}, {}


running = _Threads()
"""``running.watches``: the counts under way in this thread, outermost first."""


earlier: Storages = {}
"""Memory that was there before the inputs of what is counted now; empty where nobody has said."""
frozen = False
"""Whether this process has called gc.freeze(): what was there then is nobody's answer. (To ask gc takes as long as to look.)"""


@contextmanager
def knowing_earlier() -> Iterator[None]:
    """Within this block each tensor that Python knows of by now is one from before: who writes into it takes its memory.

    A block within it looks only at what was made since: to look through some hundred thousand things takes 0.1 s.
    """
    global frozen
    outer, freezes = dict(earlier), not frozen
    with DisableTorchFunction():  # a class of an answer's could tell of another storage
        earlier.update(_held([thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]))
    if freezes:
        gc.freeze()
        frozen = True
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
            frozen = False
        earlier.clear()
        earlier.update(outer)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    # a DTensor or the like: its bytes are in what it wraps
    if type(tensor) not in _PLAIN and hasattr(type(tensor), "__tensor_flatten__"):
        return None
    try:
        return torch.Tensor.untyped_storage(tensor)  # not one of the tensor's own
    except (NotImplementedError, RuntimeError):  # sparse and oneDNN tensors have none
        return None


_ROWS, _COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: _ROWS,
    torch.sparse_bsr: _ROWS,
    torch.sparse_csc: _COLUMNS,
    torch.sparse_bsc: _COLUMNS,
}


def _storages(tree: Any) -> Storages:
    return _held((tree,) if type(tree) is torch.Tensor else tensors(tree))


def _held(given: Iterable[torch.Tensor]) -> Storages:
    storages: Storages = {}
    for tensor in given:
        storage = _storage(tensor)
        if storage is not None:
            storages[storage._cdata] = storage, _nbytes(storage)
        elif tensor.layout in _PARTS:  # a sparse tensor is made of others
            storages |= _held([getattr(torch.Tensor, part)(tensor) for part in _PARTS[tensor.layout]])
    return storages


def _written(op: Operator, args: Any, kwargs: Any) -> Storages:
    return _storages([args[at] if at < len(args) else kwargs.get(name) for at, name in op.written])


def _leaves_torch(op: Operator, before: Storages, args: Any, kwargs: Any) -> bool:
    """Does it write what torch holds into memory that torch did not make, such as an array's?"""
    into = _written(op, args, kwargs)
    return any(not _resizable(s) for s, _ in into.values()) and any(
        _resizable(s) for s, n in before.values() if n
    )


def _wraps_others(kind: type) -> bool:
    """A tensor subclass that does its own dispatch, fake tensors apart: those behave like any meta tensor."""
    plain = private_torch.disabled_dispatch
    own = kind is not torch.Tensor and getattr(kind, "__torch_dispatch__", plain) is not plain
    return own and not issubclass(
        kind, getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
    )

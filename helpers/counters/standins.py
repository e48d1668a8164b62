"""What no dispatch mode can see: values read straight from memory, storages resized, tensors saved.

While a count runs, a few methods of torch are replaced by stand-ins that tell the watches and call the
original. A TorchFunctionMode would be the official way, but it changes what runs: with one on,
torch.nn.MultiheadAttention and TransformerEncoderLayer leave their fused kernels (44 operators for 1, and
other bits).
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.autograd.graph
import torch.utils.dlpack
from torch.autograd.graph import saved_tensors_hooks

from helpers.counters.watch import calls_back, running
from helpers.pytorch import private_torch
from helpers.pytorch.dispatch_mode import LEFT, Unseen
from helpers.pytorch.waiting import lists_in

_Syncs = Callable[..., tuple[str, ...] | None]

_lock = threading.Lock()
_users = 0
_installed = ExitStack()


@contextmanager
def stand_ins() -> Iterator[None]:
    """Install the stand-ins, once however many counts are under way, in this thread and others."""
    global _users, _installed
    with _lock:
        if _users == 0:
            with ExitStack() as stack:
                for owner, name, stand_in in _stand_ins():
                    stack.callback(_restore, owner, name, vars(owner).get(name, _INHERITED))
                    setattr(owner, name, stand_in)
                _installed = stack.pop_all()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _installed.close()


def keep_stand_ins() -> None:
    """Install them now and for good. Who has kept a method since before a count, ``READ = torch.Tensor.numpy``, has a stand-in."""
    _kept.enter_context(stand_ins())


_kept = ExitStack()
_INHERITED = object()


def _restore(owner: Any, name: str, value: Any) -> None:
    if value is _INHERITED:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _stand_ins() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    tensor = torch.Tensor
    # __dlpack__ is how NumPy's from_dlpack takes a tensor: like numpy(), it leads out of PyTorch and of our sight
    for name in ("tolist", "numpy", "__array__", "__dlpack__", "__repr__", "__format__"):
        yield tensor, name, _told(getattr(tensor, name), "silent", _always(f"Tensor.{name}"))
    # so do those below it, and whoever writes a tensor's bytes to a file
    for owner in (torch, private_torch.C, torch.utils.dlpack):
        for name in ("to_dlpack", "_to_dlpack", "_to_dlpack_versioned"):
            if hasattr(owner, name):
                yield owner, name, _told(getattr(owner, name), "silent", _always("to_dlpack"))
    write = private_torch.write_file
    yield torch.UntypedStorage, "_write_file", _told(write, "no_sync", _always("UntypedStorage._write_file"))
    yield tensor, "__reduce_ex__", _told(tensor.__reduce_ex__, "no_sync", _always("Tensor.__reduce_ex__"))
    yield tensor, "cpu", _told(tensor.cpu, "no_sync", _always("Tensor.cpu"))
    yield tensor, "to", _told(tensor.to, "no_sync", _to)
    yield tensor, "__getitem__", _told(tensor.__getitem__, "by_list", _by_lists)
    by_list = _told(tensor.__setitem__, "by_list", _by_lists)
    yield tensor, "__setitem__", _told(by_list, "assigning", _always())
    functional = torch.nn.functional
    yield functional, "one_hot", _told(functional.one_hot, "no_sync", _one_hot)
    yield torch.UntypedStorage, "resize_", _resize_and_tell
    yield torch.autograd.graph, "disable_saved_tensors_hooks", _hooks_stand_aside


def _told(original: Callable[..., Any], flag: str, syncs: _Syncs) -> Callable[..., Any]:
    """``original``, with ``flag`` up in each watch while it runs, and a sync of each name that ``syncs`` gives.

    ``syncs`` gets the call's arguments; None leaves the call alone."""

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        watches = tuple(running.watches)
        names = syncs(*args, **kwargs) if watches else None
        if names is None:
            return original(*args, **kwargs)
        called_back = any(watch.silent or watch.no_sync for watch in watches) and calls_back()
        for watch in watches:
            if called_back or not watch.silent and not watch.no_sync and not getattr(watch, flag):
                for name in names:
                    watch.ledger.waited(name)
            setattr(watch, flag, getattr(watch, flag) + 1)
        try:
            return original(*args, **kwargs)
        finally:
            for watch in watches:
                setattr(watch, flag, getattr(watch, flag) - 1)

    return stand_in


def _always(*names: str) -> _Syncs:
    return lambda *_, **__: names


def _by_lists(_: torch.Tensor, index: Any, *value: Any) -> tuple[str, ...] | None:
    return ("an index that is a list",) * len(lists_in(index)) or None


def _to(_: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[str, ...] | None:
    # Only the word "cpu" says where to. A torch.device may be another tensor's: on a GPU, the GPU.
    device = kwargs.get("device", args[0] if args else None)
    non_blocking = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
    away = isinstance(device, str) and device.startswith("cpu") and not non_blocking
    return ("Tensor.to",) if away else None


def _one_hot(_: torch.Tensor, num_classes: int = -1) -> tuple[str, ...]:
    # On the CPU it reads values to check them; on a GPU only to find a number of classes that was not given.
    return ("one_hot",) if num_classes == -1 else ()


_resize = torch.UntypedStorage.resize_


def _resize_and_tell(storage: torch.UntypedStorage, nbytes: int) -> Any:
    """``storage.resize_(n)``, by which FSDP frees and takes memory, is no operator."""
    before = storage.nbytes()
    result = _resize(storage, nbytes)
    if storage.nbytes() != before:
        for watch in running.watches:
            watch.resized("UntypedStorage.resize_", storage)
    return result


class _Saved(NamedTuple):
    tensor: torch.Tensor
    version: int
    made_by: str


def saved_tensors() -> AbstractContextManager[None]:
    """Hooks that tell all watches of this thread what autograd saves. (torch calls only the innermost.)"""
    return _Hooks(_pack, _unpack)


class _Hooks(saved_tensors_hooks):
    """RuntimeError at their end where somebody has taken them off, by leaving others that were not entered."""

    def __exit__(self, *error: object) -> None:
        on_top = private_torch.saving_hooks(True)
        super().__exit__(*error)
        if on_top is None or on_top[0] is not _pack:
            raise RuntimeError(LEFT)


def _pack(tensor: torch.Tensor) -> _Saved:
    with private_torch.DisableTorchFunction():
        for watch in running.watches:
            watch.save(tensor)
        made_by = (
            f", which is output {tensor.output_nr} of {tensor.grad_fn.name()}," if tensor.grad_fn else ""
        )
        # Detached: an output saved by the node that made it would else keep that node, and so itself, alive.
        # Nobody is to see that, least of all a simulated GPU, whose CPU would take time for it.
        with Unseen():
            # the class's own: an answer may have given its tensor another, and what that does nobody would see
            return _Saved(torch.Tensor.detach(tensor), tensor._version, made_by)


def _unpack(saved: _Saved) -> torch.Tensor:
    """With hooks installed, torch leaves out its check that nobody wrote into what was saved: here it is."""
    tensor, now = saved.tensor, saved.tensor._version
    if now != saved.version:
        shape = f"{tensor.type()} {list(tensor.shape)}"
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{shape}]{saved.made_by} is at version {now}; expected version {saved.version} instead. Hint: "
            "enable anomaly detection to find the operation that failed to compute its gradient, with "
            "torch.autograd.set_detect_anomaly(True)."
        )
    return tensor


@contextmanager
def _hooks_stand_aside(message: str) -> Iterator[None]:
    """torch.func's transforms refuse to start where hooks are installed: ours are not called meanwhile, and watches
    take for saved whatever operators are given or make."""
    autograd = private_torch.saved_tensors_hooks
    before = autograd._saved_tensors_hooks_get_disabled_error_message()
    tracing = autograd._saved_tensors_hooks_set_tracing(True)
    autograd._saved_tensors_hooks_disable(message, False)
    watches = tuple(running.watches)
    for watch in watches:
        watch.without_hooks += 1
    try:
        yield
    finally:
        for watch in watches:
            watch.without_hooks -= 1
        autograd._saved_tensors_hooks_set_tracing(tracing)
        if before is None:
            autograd._saved_tensors_hooks_enable()
        else:
            autograd._saved_tensors_hooks_disable(before, False)

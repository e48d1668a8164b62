"""Listen where every call of torch.distributed passes: the dispatcher's ``c10d`` operators.

``dist.*``, DDP's reducer (C++), FSDP, DTensor and functional collectives all end in ``ProcessGroup``'s
methods, and each of those dispatches one operator of the namespace ``c10d``
(torch/csrc/distributed/c10d/ProcessGroup.hpp), in whatever thread. While somebody listens, these operators have a
kernel in front of their own, which tells and then calls the operator again, below itself. The process group, its
backend and the results are the same.

Seen beside them: the methods of ``Backend`` called from Python, which pass the dispatcher by; and
``Work.wait``, ``Work.is_completed``, ``Future.wait`` and what is made of futures.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from unittest import mock

import torch
import torch.distributed as dist

from helpers.pytorch import private_torch
from helpers.pytorch.tensors import tensors

from . import collectives
from .records import Call

Backend, ProcessGroup, Work = private_torch.Backend, private_torch.ProcessGroup, private_torch.Work

#: of ReduceOp's numbers, torch/csrc/distributed/c10d/Types.hpp
_REDUCTIONS = {
    int(getattr(dist.ReduceOp, n).value): n.lower() for n in dir(dist.ReduceOp.RedOpType) if n.isupper()
}
_KEYS = ("CPU", "CUDA", "Meta")
#: every thread has this key, in inference_mode too, and none of these operators uses it
_FRONT = private_torch.DispatchKey.BackendSelect
_BEHIND = private_torch.keys_behind(_FRONT)


class Listener(Protocol):
    """Gets every call and every wait. Must not raise."""

    def call(self, heard: Call) -> int:
        """A call is made, its index still unknown; returns the number by which waiting for it is told."""

    def wait(self, number: int) -> None:
        """Somebody begins to wait for the call of that number."""

    def poll(self, number: int) -> None:
        """Somebody asks whether the call of that number is done."""


_Numbers = list[tuple[Listener, int]]
_users: list[Listener | None] = []
_works: dict[int, tuple[weakref.ref[Any], _Numbers]] = {}
_newest: list[Any] = []  # kept until the caller has it, so that it is the caller's very object
_replaced = contextlib.ExitStack()
#: what takes the place of the works of all-reduces; see helpers.ranks.faking
finished: list[Callable[[Any], Any]] = []


@contextlib.contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Tell ``listener`` all calls of the block (None: only put the kernels in place)."""
    if not _users:
        _replace()
    _users.append(listener)
    try:
        yield
    finally:
        _users.remove(listener)
        release()
        if not _users:
            _replaced.close()
            _works.clear()


def release() -> None:
    """Let go of the newest call's work: nothing of a rank's memory lives longer because somebody listens."""
    _newest.clear()


def _replace() -> None:
    library = torch.library.Library("c10d", "IMPL")
    _replaced.callback(library._destroy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced, which is what is wanted
        for full in private_torch.operator_names():
            name = full.removeprefix("c10d::")
            if name == full or "." in name or collectives.kind_of(name) is None:
                continue
            if any(private_torch.has_kernel(full, key) for key in _KEYS):
                _replace_one(library, full, name)
    for name in [n for n in collectives.NAMES if hasattr(Backend, n)]:
        _patch(Backend, name, functools.partial(_direct, name))
    own_wait = [kind for kind in Work.__subclasses__() if "wait" in vars(kind)]  # the fake group's works
    for kind in (Work, *own_wait):
        _patch(kind, "wait", _waits)
    _patch(Work, "is_completed", _polls)
    _patch(Work, "get_future", _gives_future)
    _patch(private_torch.Future, "wait", _waits)
    _patch(private_torch.Future, "then", _followed)
    place = private_torch.place("collect_all")  # torch.futures.wait_all too
    _replaced.enter_context(mock.patch.object(*place, functools.partial(_collected, getattr(*place))))


def _replace_one(library: Any, full: str, name: str) -> None:
    names = [argument.name for argument in private_torch.schema(full, "").arguments]

    def tell(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        numbers = _tell(name, names, args, kwargs)
        result = call(*args, **kwargs)
        if finished and name == "allreduce_":
            result = args[0], finished[-1](args[0])
        if numbers:
            _follow(result, numbers)
        return result

    # In front of the kernels, and not in their place: a kernel called from Python (get_kernel, call_boxed) has the
    # interpreter's lock, and so has whoever waits in it for Gloo's own lock; Gloo's thread can hold that while it
    # wants the interpreter's, to free a tensor that Python has dropped. An operator, redispatched too, lets go of it.
    operator = getattr(torch.ops.c10d, name).default

    def front(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return tell(functools.partial(operator.redispatch, keys & _BEHIND), args, kwargs)

    library.impl(name, front, _FRONT.name, with_keyset=True, allow_override=True)


def _tell(name: str, names: list[str], args: Any, kwargs: Any) -> _Numbers:
    if not any(_users):
        return []
    given = dict(zip(names, args, strict=False)) | kwargs
    ranks, kind = _ranks(ProcessGroup.unbox(given["process_group"])), collectives.kind_of(name) or name
    read, filled = collectives.sides(given)
    peer = next((given[k] for k in ("root_rank", "dst", "src") if k in given), None)
    return _heard(
        f"c10d::{name}",
        kind,
        ranks,
        [] if kind == "barrier" else list(tensors(read)),
        bytes=collectives.payload(kind, _size(read), _size(filled), len(ranks)),
        peer=ranks[peer] if peer is not None else None,
        reduction=_REDUCTIONS.get(int(given["reduce_op"].op()), "?") if "reduce_op" in given else "",
        asynchronous=_asynchronous(kind, given),
    )


def _heard(
    operator: str, kind: str, group: tuple[int, ...], read: list[torch.Tensor], **about: Any
) -> _Numbers:
    release()
    dtypes = ", ".join(dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in read))
    shapes = tuple(tuple(t.shape) for t in read)
    heard = Call(-1, kind, group=group, shapes=shapes, dtype=dtypes, operator=operator, **about)
    return [(one, one.call(heard)) for one in list(_users) if one is not None]


def _ranks(group: Any) -> tuple[int, ...]:
    try:
        return tuple(dist.get_process_group_ranks(group))
    except (KeyError, ValueError, RuntimeError):  # a group that torch.distributed has no name for
        return tuple(range(group.size()))


def _size(value: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors(value))


def _asynchronous(kind: str, given: dict[str, Any]) -> bool:
    if kind in ("send", "recv"):  # these have no such argument; dist.send and dist.recv wait for themselves
        return not _called_by("send", "recv")
    return bool(given.get("async_op", "wait_all_ranks" not in given))


def _called_by(*names: str) -> bool:
    """Whether torch.distributed's function of such a name makes this call."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")) in _BETWEEN:
        if frame.f_code.co_name in names and frame.f_globals["__name__"] == dist.distributed_c10d.__name__:
            return True
        frame = frame.f_back
    return False


#: modules that lie between a call of torch.distributed and its kernel
_BETWEEN = {__name__, "functools", "torch.library", "torch._ops", "torch._library.utils"}
_BETWEEN |= {"torch.distributed.distributed_c10d", "torch.distributed.c10d_logger"}


def _follow(result: Any, numbers: _Numbers) -> None:
    boxed = result[-1] if isinstance(result, list | tuple) else result
    if boxed is not None:
        _remember(Work.unbox(boxed), numbers)


def _remember(work: Any, numbers: _Numbers) -> None:
    _newest.append(work)
    _works[id(work)] = weakref.ref(work), numbers


def _known(thing: Any) -> _Numbers:
    entry = _works.get(id(thing))
    return entry[1] if entry is not None and entry[0]() is thing else []


def _patch(owner: Any, name: str, new: Callable[..., Any]) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return new(real, self, *args, **kwargs)

    del call.__wrapped__  # the way past the recorder
    _replaced.enter_context(mock.patch.object(owner, name, call))


def _waits(real: Any, thing: Any, *args: Any, **kwargs: Any) -> Any:
    for listener, number in _known(thing):
        listener.wait(number)
    return real(thing, *args, **kwargs)


def _polls(real: Any, work: Any) -> Any:
    for listener, number in _known(work):
        listener.poll(number)
    return real(work)


def _gives_future(real: Any, work: Any) -> Any:
    return _stands_for(real(work), _known(work))


def _followed(real: Any, future: Any, callback: Any) -> Any:
    return _stands_for(real(future, callback), _known(future))


def _collected(real: Any, futures: Any) -> Any:
    return _stands_for(real(futures), [number for future in futures for number in _known(future)])


def _stands_for(future: Any, numbers: _Numbers) -> Any:
    if numbers:
        _works[id(future)] = weakref.ref(future), numbers
    return future


def _direct(name: str, real: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
    """A method of a Backend, called from Python."""
    parts = [*args, *kwargs.values()]
    kind, most = collectives.kind_of(name) or name, max((_size(p) for p in parts), default=0)
    everyone = tuple(range(backend.size()))
    numbers = _heard(f"Backend.{name}", kind, everyone, list(tensors(parts)), bytes=most, asynchronous=True)
    work = real(backend, *args, **kwargs)
    if work is not None and numbers:
        _remember(work, numbers)
    return work

"""Put torch back as it was: when grading, what measures must not run on functions that the answer has replaced.

Within one process this cannot be complete; it ends the short ways (``torch.Tensor.untyped_storage = …``,
``torch.equal = …``, ``builtins.isinstance = …``). Values are compared in another process in any case.
"""

import builtins
import gc
import importlib
import inspect
import json
import logging
import mmap
import os
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.autograd.graph
import torch.overrides
import torch.utils._python_dispatch
import torch.utils._pytree


def _owners(modules: list[Any]) -> list[Any]:
    """Modules and classes whose attributes the probe and the counters use."""
    fixed = [
        *(
            builtins,
            gc,
            inspect,
            json,
            weakref,
            weakref.finalize,
            torch,
            torch.overrides,
            torch.nn.functional,
        ),
        *(
            torch.Tensor,
            torch.UntypedStorage,
            torch.TypedStorage,
            torch.nn.Parameter,
            torch.Generator,
            torch.autograd,
        ),
        *(torch.autograd.graph, torch.autograd.graph.saved_tensors_hooks, torch.autograd.Function),
        *(torch.utils._python_dispatch, torch.utils._python_dispatch.TorchDispatchMode, torch.utils._pytree),
    ]
    return [*fixed, *modules, *_classes(modules)]


def _classes(modules: list[Any]) -> list[Any]:
    return [v for m in modules for v in vars(m).values() if inspect.isclass(v) and v.__module__ == m.__name__]


def remember(modules: list[Any], code_of: list[Any] | None = None) -> Callable[[], list[str]]:
    """Note how things are now; the returned function puts them back and names what had been changed.

    modules: further modules to watch, their classes included. code_of: modules of which only functions, classes and
    properties are put back, since they keep state of their own in variables.
    """
    then = [(owner, dict(vars(owner)), True) for owner in _owners(modules)]
    for owner in [*(code_of or []), *_classes(code_of or [])]:
        code = {k: v for k, v in vars(owner).items() if callable(v) or hasattr(v, "__get__")}
        then.append((owner, code, False))

    def restore() -> list[str]:
        changed = []
        for owner, had, whole in then:
            now = vars(owner)
            for name, value in had.items():
                if (
                    now.get(name) is not value
                    and not name.startswith("__")
                    or name in _SPECIAL
                    and now.get(name) is not value
                ):
                    _put(owner, name, value)
                    changed.append(f"{owner.__name__}.{name}")
            if whole and inspect.isclass(owner):
                for name in [
                    n for n in now if n not in had and any(n in vars(base) for base in owner.__mro__[1:])
                ]:
                    type.__delattr__(owner, name)
                    changed.append(f"{owner.__name__}.{name}")
        return changed

    return restore


#: the special methods that a comparison or a conversion to plain data could go through
_SPECIAL = {
    "__eq__",
    "__ne__",
    "__len__",
    "__iter__",
    "__getitem__",
    "__torch_function__",
    "__torch_dispatch__",
    "__array__",
}
_SPECIAL |= {
    "__import__",
    "__build_class__",
    "__enter__",
    "__exit__",
    "__bool__",
    "__float__",
    "__int__",
    "__new__",
    "__init__",
}


def _put(owner: Any, name: str, value: Any) -> None:
    if inspect.isclass(owner):
        type.__setattr__(owner, name, value)
    else:
        vars(owner)[name] = value


#: ways to keep operators from the counters: (module, name)
_WAYS_ROUND = [
    ("torch.utils._python_dispatch", "_disable_current_modes"),
    ("torch.utils._python_dispatch", "_pop_mode_temporarily"),
    ("torch.utils._python_dispatch", "_pop_mode"),
    # whoever holds the mode that counts can write into it
    ("torch.utils._python_dispatch", "_get_current_dispatch_mode"),
    ("torch.utils._python_dispatch", "_get_current_dispatch_mode_stack"),
    ("torch._C", "_get_dispatch_stack_at"),
    ("torch._C", "_pop_torch_dispatch_stack"),
    ("torch._C", "_unset_dispatch_mode"),
    ("torch._C", "_DisableTorchDispatch"),
    ("torch._C", "_ExcludeDispatchKeyGuard"),
    ("torch._C", "_ForceDispatchKeyGuard"),
    ("torch._ops", "OpOverload.redispatch"),
    ("_thread", "start_new_thread"),  # Python 3.11 has no event for it
    ("threading", "Thread.start"),
    ("ctypes", "cast"),  # a value read by its address is a read that nothing sees
]
#: the same among Python's own audit events (the table in its library reference, "Audit events"): no patch to undo
_EVENTS = {
    *("gc.get_objects", "gc.get_referrers", "gc.get_referents"),  # the mode that counts is in those lists
    *(
        "sys.setprofile",
        "sys.settrace",
        "threading.setprofile",
        "threading.settrace",
    ),  # sees the grader's frames
    *("ctypes.cdata", "ctypes.cdata/buffer", "ctypes.string_at", "ctypes.wstring_at", "ctypes.memoryview_at"),
    *("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"),
    *("subprocess.Popen", "sys._current_frames", "sys._current_exceptions"),
}
#: roads to a frame by an attribute, and the standard library's functions that hand out frames
_TO_FRAMES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}
_GIVE_FRAMES = {f.__code__ for f in (inspect.currentframe, inspect.stack, logging.currentframe)}

#: those that find the test's own objects, which a forked process must not do either: a DataLoader's worker
_LOOKS = {
    *("sys._getframe", "object.__getattr__"),
    *(event for event in _EVENTS if event.startswith(("gc.", "sys.", "threading."))),
}

#: what turns a function or an object into another, under the same name
_ANOTHER = {"__class__", "__code__", "__bases__"}


#: in a rank also: ways to speak to another that are not torch.distributed's calls, and so are not recorded
_BESIDE = [
    ("torch._C._distributed_c10d", f"Store.{name}")
    for name in ("set", "get", "add", "append", "wait", "compare_set", "multi_set", "multi_get", "queue_push", "queue_pop")
]  # fmt: skip
_BESIDE_EVENTS = {"open", "socket.connect", "socket.bind", "mmap.__new__"}


def watch(
    rank: bool = False,
) -> tuple[Callable[[], list[str]], Callable[[Callable[..., Any] | None], None]]:
    """Note each time code that is not a library's takes one of the ways round the counters.

    rank: this is a rank, which also must not speak to others except by torch.distributed's calls.

    The first of the returned functions names those taken since it was last called. PyTorch takes them too, and may, as
    may the course's own helpers; they are told apart by the file of the caller, the standard library and other packages
    passed over. The second is given the test's drive, which may take them as well: its own code, not what it calls.
    It cannot be undone: for a process that ends with the grading.
    """
    taken: tuple[str, ...] = ()  # no list: one could be emptied by whoever walks up the stack to it
    driving: tuple[CodeType, ...] = ()
    others = (str(Path(inspect.__file__).parent), *_libraries(), "<frozen")
    own = (str(Path(torch.__file__).parent), str(Path(__file__).parent.parent))
    hired = tuple(f"{own[0]}/{part}" for part in ("utils/data", "multiprocessing"))  # work for whoever calls
    getpid, home, looked = (
        os.getpid,
        os.getpid(),
        mmap.mmap(-1, 1),
    )  # looked: seen by this process and its forks

    def note(path: str, frame: Any) -> None:
        nonlocal taken
        while frame.f_back and frame.f_code.co_filename.startswith(others):
            if frame.f_code.co_filename.startswith(own) and not frame.f_code.co_filename.startswith(hired):
                return
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(own) and not any(frame.f_code is code for code in driving):
            taken += (path,)
            if path in _LOOKS and getpid() != home:
                looked[0] = 1

    def noted(path: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            note(path, sys._getframe(1))
            return real(*args, **kwargs)

        return call

    looking = False

    def hear(event: str, args: Any) -> None:
        nonlocal looking
        if looking:  # sys._getframe is an event itself
            return
        attribute = args[1] if event in ("object.__setattr__", "object.__getattr__") else ""
        if rank and event in _BESIDE_EVENTS:
            looking = True
            frame = sys._getframe(1)
            looking = False
            if not frame.f_code.co_filename.startswith("<frozen importlib"):  # an import opens files
                note(event, frame)
        elif event in _EVENTS or attribute in (_ANOTHER if event == "object.__setattr__" else _TO_FRAMES):
            looking = True
            note(event, sys._getframe(1))
            looking = False
        elif event == "sys._getframe":  # the standard library looks one frame up for many a good reason
            looking = True
            frame = sys._getframe(1)
            looking = False
            if frame.f_code in _GIVE_FRAMES and frame.f_back:
                frame = frame.f_back
            if not frame.f_code.co_filename.startswith((*others, *own)):
                note(event, frame)

    for module, name in [*_WAYS_ROUND, *(_BESIDE if rank else [])]:
        owner: Any = importlib.import_module(module)
        *above, last = name.split(".")
        for part in above:
            owner = getattr(owner, part)
        if hasattr(owner, last):  # private names come and go with torch's versions
            setattr(owner, last, noted(f"{module}.{name}", getattr(owner, last)))
    sys.addaudithook(hear)
    for name in ("_op_dk", "_handle"):  # kernels by their dispatch key
        setattr(torch._ops.OpOverload, name, _told_of(name, noted))

    def told() -> list[str]:
        nonlocal taken, home
        names, taken, home = list(dict.fromkeys(taken)), (), getpid()
        if looked[0]:
            looked[0] = 0
            names.append("frames or objects, looked through in a worker")
        return names

    def drives(drive: Callable[..., Any] | None) -> None:
        nonlocal driving
        driving = tuple(_codes(drive)) if isinstance(drive, FunctionType) else ()

    return told, drives


def _codes(drive: FunctionType) -> Iterator[CodeType]:
    """The code of a drive and of the functions of its test, and of the functions and classes inside them."""
    space = drive.__globals__
    pending = [drive.__code__]
    pending += [v.__code__ for v in space.values() if isinstance(v, FunctionType) and v.__globals__ is space]
    while pending:
        code = pending.pop()
        yield code
        pending += [inner for inner in code.co_consts if isinstance(inner, CodeType)]


def _told_of(name: str, noted: Callable[[str, Any], Any]) -> property:
    made = vars(torch._ops.OpOverload).get(name)  # or each has its own
    read = noted(f"OpOverload.{name}", lambda op: vars(op)[name] if made is None else made.__get__(op))
    return property(read, lambda op, value: vars(op).__setitem__(name, value))


def _libraries() -> set[str]:
    """Where pip puts packages: torch's own requirements, such as networkx, do what they must when they are loaded."""
    return {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}


def course_modules() -> list[Any]:
    """The modules of :mod:`helpers.check` that are loaded."""
    return [m for n, m in sys.modules.items() if n == "helpers.check" or n.startswith("helpers.check.")]


def other_modules() -> list[Any]:
    """The other modules of :mod:`helpers` that are loaded: what a test's ``drive`` may use, such as the simulator."""
    return [
        m
        for n, m in sys.modules.items()
        if n.partition(".")[0] == "helpers" and n.split(".")[1:2] not in (["check"], ["classroom"], [])
    ]

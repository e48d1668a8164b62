"""Put torch back as it was: when grading, what measures must not run on functions that the answer has replaced.

Within one process this cannot be complete; it ends the short ways (``torch.Tensor.untyped_storage = …``,
``torch.equal = …``, ``builtins.isinstance = …``). Values are compared in another process in any case.
"""

import builtins
import gc
import importlib
import inspect
import json
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
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
    own = [v for m in modules for v in vars(m).values() if inspect.isclass(v) and v.__module__ == m.__name__]
    return [*fixed, *modules, *own]


def remember(modules: list[Any]) -> Callable[[], list[str]]:
    """Note how things are now; the returned function puts them back and names what had been changed.

    modules: further modules to watch, their classes included.
    """
    then = [(owner, dict(vars(owner))) for owner in _owners(modules)]

    def restore() -> list[str]:
        changed = []
        for owner, had in then:
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
            if inspect.isclass(owner):
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
    # whoever holds the mode that counts, or finds it in the garbage collector's list, can write into it
    ("torch.utils._python_dispatch", "_get_current_dispatch_mode"),
    ("torch.utils._python_dispatch", "_get_current_dispatch_mode_stack"),
    ("torch._C", "_get_dispatch_stack_at"),
    ("gc", "get_objects"),
    ("gc", "get_referrers"),
    ("gc", "get_referents"),
    ("torch._C", "_pop_torch_dispatch_stack"),
    ("torch._C", "_unset_dispatch_mode"),
    ("torch._C", "_DisableTorchDispatch"),
    ("torch._C", "_ExcludeDispatchKeyGuard"),
    ("torch._C", "_ForceDispatchKeyGuard"),
    ("_thread", "start_new_thread"),
    ("threading", "Thread.start"),
    ("os", "fork"),
    ("os", "posix_spawn"),
    ("os", "system"),
    ("subprocess", "Popen.__init__"),
]


def watch() -> Callable[[], list[str]]:
    """Note each time code that is not a library's takes one of the ways round the counters.

    The returned function names those taken since it was last called. PyTorch takes them too, and may; it is told
    apart by the file of the caller, the standard library passed over.
    """
    taken: tuple[str, ...] = ()  # no list: one could be emptied by whoever walks up the stack to it
    standard, torch_itself = str(Path(inspect.__file__).parent), str(Path(torch.__file__).parent)

    def noted(path: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            while (
                frame.f_back
                and frame.f_code.co_filename.startswith(standard)
                and "site-packages" not in frame.f_code.co_filename
            ):
                frame = frame.f_back
            if not frame.f_code.co_filename.startswith(torch_itself):
                nonlocal taken
                taken += (path,)
            return real(*args, **kwargs)

        return call

    for module, name in _WAYS_ROUND:
        owner: Any = importlib.import_module(module)
        *above, last = name.split(".")
        for part in above:
            owner = getattr(owner, part)
        if hasattr(owner, last):  # private names come and go with torch's versions
            setattr(owner, last, noted(f"{module}.{name}", getattr(owner, last)))

    def told() -> list[str]:
        nonlocal taken
        names, taken = list(dict.fromkeys(taken)), ()
        return names

    return told


def course_modules() -> list[Any]:
    """The modules of :mod:`helpers.check` that are loaded."""
    return [m for n, m in sys.modules.items() if n == "helpers.check" or n.startswith("helpers.check.")]

"""Which of PyTorch's operators contract, found by trying: prints their names. Run as a program, as some that get
arguments which only fit their schema end the process; each is tried in a child.

One contracts if a number of its result depends on several numbers of one tensor and on several of another: sums of
products do, and so do losses, distances and normalisations, where sums go over each number once.
"""

import itertools
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch

_SHAPES = ((3,), (3, 3), (3, 3, 3), (1, 3, 3, 3), (1, 3, 3, 3, 3))


def tried() -> Iterator[Any]:
    """Overloads that are no mere composition of others, and write into none of their tensors."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if space not in ("aten", "mkldnn", "mkl") or has(name, "CompositeImplicitAutograd"):
            continue
        runs = has(name, "CPU") or has(name, "CompositeExplicitAutograd")
        func = getattr(getattr(getattr(torch.ops, space), packet, None), overload or "default", None)
        if func is not None and runs and not func._schema.is_mutable:
            yield func


def _arguments(func: Any) -> Iterator[list[Any]]:
    needed = [a for a in func._schema.arguments if not a.kwarg_only]
    kinds = [str(a.type) for a in needed]
    places = kinds.count("Tensor")
    if not 1 < places < 6:
        return
    few = places < 4
    for shapes in itertools.product(_SHAPES, repeat=places) if few else [[s] * places for s in _SHAPES]:
        for size in (1, 2, 3) if {"List[int]", "List[SymInt]"} & {*kinds} else (1,):
            for dtype in (torch.float32, torch.int8):
                draw = torch.Generator().manual_seed(1)
                given = iter(torch.rand(s, generator=draw).add(0.1).mul(1 if dtype.is_floating_point else 5).to(dtype) for s in shapes)  # fmt: skip
                values = {"int": 1, "number": 1, "float": 1.0, "bool": False, "str": "none"}
                values |= {"List[int]": [1] * size, "List[SymInt]": [1] * size, "List[bool]": [True] * 3}
                yield [
                    next(given) if kind == "Tensor" else a.default_value if a.has_default_value() else values.get(kind)
                    for a, kind in zip(needed, kinds, strict=True)
                ]  # fmt: skip


def _numbers(result: Any) -> torch.Tensor:
    parts = [result] if isinstance(result, torch.Tensor) else list(result)
    return torch.cat([t.double().flatten() for t in parts if isinstance(t, torch.Tensor)])


def _contracts(func: Any, args: list[Any]) -> bool:
    plain, many = _numbers(func(*args)), []
    if not torch.equal(plain, _numbers(func(*args))):
        return False  # random, or not a number
    for i, tensor in enumerate(args):
        if not isinstance(tensor, torch.Tensor):
            continue
        changed = torch.zeros(plain.shape, dtype=torch.int64)
        for k in range(min(tensor.numel(), 9)):
            other = tensor.clone()
            other.view(-1)[k] += 1
            now = _numbers(func(*args[:i], other, *args[i + 1 :]))
            changed += now.shape == plain.shape and (now - plain).abs() > 1e-5 * plain.abs()
        many.append(changed > 1)
    return bool((sum(m.long() for m in many) > 1).any())


def _found(func: Any) -> bool:
    for args in _arguments(func):
        try:
            if _contracts(func, args):
                return True
        except Exception:
            continue
    return False


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    left = list(tried())
    while left:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for func in left:
                signal.alarm(5)
                os.write(write, f"{func if _found(func) else '-'}\n".encode())
            os._exit(0)
        os.close(write)
        with open(read) as lines:
            done = lines.read().split()
        os.waitpid(child, 0)
        print(*(name for name in done if name != "-"), sep="\n", flush=True)
        left = left[len(done) + 1 :]  # the next one has ended the process


if __name__ == "__main__":
    sys.exit(main())

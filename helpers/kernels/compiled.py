"""What Triton's compiler makes of kernels for an H100, which need not be there: refusals, registers, and what does not fit."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from helpers.kernels import language
from helpers.kernels.traffic import Program, Watch

_TYPES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "i1",
}  # fmt: skip
#: seconds; a large block takes some
_MOST_S = 120.0


@dataclass(frozen=True)
class Compiled:
    """What became of a kernel. refused: what the compiler says against it, or "". registers, spilled_bytes: of each thread, what
    it holds and what does not fit; shared_bytes: of a program. See :func:`compiled`."""

    name: str
    refused: str = ""
    registers: int = 0
    spilled_bytes: int = 0
    shared_bytes: int = 0


def compiled(seen: Watch, num_warps: int = 4, whole: bool = True) -> list[Compiled]:
    """Each kernel that was launched, compiled for an H100; nothing runs there. One that was launched in the same way twice is one.

    >>> with kernels.watch() as seen:
    ...     double[(4,)](x, out, 100, BLOCK=32)
    >>> kernels.compiled(seen)
    [Compiled(name='double', refused='', registers=..., spilled_bytes=0, shared_bytes=0)]

    num_warps: of a program, 32 threads each. whole: ``False`` asks only whether Triton's language has all that a kernel uses,
    which takes a tenth of a second. Raises RuntimeError where the compiler does not start, or takes minutes.
    """
    programs = list[Program]()
    for launch in seen.launches:
        if launch.program is not None and (asked := launch.program()) not in programs:
            programs.append(asked)
    return compile_all(programs, num_warps, whole)


def compile_all(programs: Sequence[Program], num_warps: int = 4, whole: bool = True) -> list[Compiled]:
    """The same of programs, in a process where Triton interprets nothing.

    >>> with kernels.watch() as seen:
    ...     double[(4,)](x, out, 100, BLOCK=32)
    >>> programs = [launch.program() for launch in seen.launches]
    >>> [made.spilled_bytes for made in kernels.compile_all(programs, num_warps=8)]
    [0]
    """
    asked = [asdict(program) | {"num_warps": num_warps, "whole": whole} for program in programs]
    try:
        run = subprocess.run(
            [sys.executable, "-P", str(Path(__file__).with_name("for_gpu.py"))],
            input=json.dumps(asked),
            capture_output=True,
            encoding="utf-8",
            timeout=_MOST_S,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"Triton's compiler was not done within {_MOST_S:.0f} s") from None
    if run.returncode:
        raise RuntimeError(f"Triton's compiler did not start: {run.stderr.strip()[-500:]}")
    said = json.loads(run.stdout)
    return [Compiled(program.name, **one) for program, one in zip(programs, said, strict=True)]


def program(
    kernel: FunctionType, arguments: Mapping[str, Any], tl: Any, is_kernel: Callable[[Any], bool]
) -> Program:
    """A launch of this kernel with these arguments, as its compiler would get it.

    As a launch on a GPU does, it makes a constant of each integer that is 1, and tells what is a multiple of 16.
    """
    signature, constants, divisible = dict[str, str](), dict[str, Any](), list[str]()
    known = kernel.__annotations__
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            signature[name] = f"*{_TYPES[value.dtype]}"
            divisible += [name] if value.data_ptr() % 16 == 0 else []
        elif "constexpr" in str(known.get(name, "")) or value is None or (type(value) is int and value == 1):
            signature[name], constants[name] = "constexpr", _plain(value, tl)
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            signature[name] = (
                "i1" if value is True or value is False else "i32" if abs(value) < 1 << 31 else "i64"
            )
            divisible += [name] if value % 16 == 0 else []
    lines = ["import triton", "import triton.language as tl", *_text(kernel, tl, is_kernel, set())]
    return Program(kernel.__name__, "\n".join(lines) + "\n", signature, constants, tuple(divisible))


def _plain(value: Any, tl: Any) -> Any:
    """A constant as JSON has it; a type of Triton's by its name."""
    if isinstance(value, tl.constexpr):
        return _plain(value.value, tl)
    return {"dtype": f"tl.{_named(value, tl)}"} if isinstance(value, tl.dtype) else value


def _named(dtype: Any, tl: Any) -> str:
    return next(name for name, known in vars(tl).items() if isinstance(known, tl.dtype) and known == dtype)


def _text(
    kernel: FunctionType, tl: Any, is_kernel: Callable[[Any], bool], written: set[str]
) -> Iterator[str]:
    """The kernel's source after that of all that it names: other kernels, constants. A name that Triton does not know is left
    out, and the compiler says so."""
    tree = language.read(kernel)
    if tree.name in written:
        return
    written.add(tree.name)
    for name in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}):
        value: Any = kernel.__globals__.get(name)
        if is_kernel(value):
            yield from _text(value.fn, tl, is_kernel, written)
            if value.fn.__name__ != name:
                yield f"{name} = {value.fn.__name__}"
        elif value is tl and name != "tl":
            yield f"{name} = tl"
        elif isinstance(value, tl.constexpr):
            constant = _plain(value, tl)
            yield f"{name} = tl.constexpr({constant['dtype'] if isinstance(constant, dict) else repr(constant)})"
        elif isinstance(value, tl.dtype):
            yield f"{name} = tl.{_named(value, tl)}"
    bare = ast.parse(ast.unparse(tree)).body[0]
    assert isinstance(bare, ast.FunctionDef)
    bare.decorator_list, bare.returns = [ast.parse("triton.jit", mode="eval").body], None
    for argument in [*bare.args.posonlyargs, *bare.args.args, *bare.args.kwonlyargs]:
        constant = argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)
        argument.annotation = ast.parse("tl.constexpr", mode="eval").body if constant else None
    yield ast.unparse(ast.fix_missing_locations(bare))

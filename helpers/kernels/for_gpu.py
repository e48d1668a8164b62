"""Kernels through Triton's own compiler, for a GPU that need not be there. Run by its path, in a process of its own, since
Triton runs kernels by its interpreter in the course's: a list of programs comes in as JSON, what became of them goes out.

Uses nothing of the course: only Triton is imported, which takes a fifth of a second.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

TARGET = ("cuda", 90, 32)  # an H100


def main() -> None:
    programs = json.load(sys.stdin)
    os.environ.pop("TRITON_INTERPRET", None)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.environ["TRITON_CACHE_DIR"] = folder
        warnings.simplefilter("ignore")
        said = [_compiled(program, Path(folder, f"kernel_{i}.py")) for i, program in enumerate(programs)]
    json.dump(said, sys.stdout)


def _compiled(program: dict[str, Any], file: Path) -> dict[str, Any]:
    """refused: what the compiler says, where it takes the kernel "". The rest where it is compiled to the end (`whole`)."""
    import triton  # type: ignore[import-not-found,unused-ignore]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found,unused-ignore]
    from triton.compiler import ASTSource  # type: ignore[import-not-found,unused-ignore]

    file.write_text(program["source"], encoding="utf-8")  # a kernel's source is read from its file
    names: dict[str, Any] = {"__name__": file.stem}
    try:
        exec(compile(program["source"], str(file), "exec"), names)  # noqa: S102 - the learner's own kernel
        kernel, signature = names[program["name"]], program["signature"]
        constants = {name: _constant(value, names) for name, value in program["constants"].items()}
        attributes = {
            (i,): [["tt.divisibility", 16]]
            for i, name in enumerate(signature)
            if name in program["divisible"]
        }
        source = ASTSource(kernel, signature, constants, attributes)
        target, options = GPUTarget(*TARGET), {"num_warps": program["num_warps"]}
        if not program["whole"]:
            _first_stage(source, target, options)
            return {"refused": ""}
        made = triton.compile(source, target=target, options=options)
        return {"refused": "", **_resources(made.asm["cubin"], file.with_suffix(".cubin"))}
    except Exception as problem:
        return {"refused": _said(problem)}


def _constant(value: Any, names: dict[str, Any]) -> Any:
    return eval(value["dtype"], names) if isinstance(value, dict) else value  # noqa: S307 - "tl.float32"


def _first_stage(source: Any, target: Any, options: dict[str, Any]) -> None:
    """Python to Triton's first form: here it refuses what its language has not."""
    from triton._C.libtriton import ir  # type: ignore[import-not-found,unused-ignore]
    from triton.compiler.compiler import make_backend  # type: ignore[import-not-found,unused-ignore]

    backend, context = make_backend(target), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    parsed = backend.parse_options(options)
    codegen, modules = backend.get_codegen_implementation(parsed), backend.get_module_map()
    source.make_ir(target, parsed, codegen, modules, context)


def _resources(cubin: bytes, file: Path) -> dict[str, int]:
    """registers: of a thread; spilled_bytes: of a thread, its stack in device memory; shared_bytes: of a program."""
    import triton  # type: ignore[import-not-found,unused-ignore]

    file.write_bytes(cubin)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    text = subprocess.run(
        [tool, "-res-usage", file], capture_output=True, encoding="utf-8", check=True
    ).stdout
    found = dict(re.findall(r"\b(REG|STACK|SHARED):(\d+)", text))
    return {
        "registers": int(found["REG"]),
        "spilled_bytes": int(found["STACK"]),
        "shared_bytes": int(found["SHARED"]),
    }


def _said(problem: BaseException) -> str:
    """The cause in one line, after the line of the kernel that it is about."""
    cause: Any = problem
    while cause.__cause__ is not None:
        cause = cause.__cause__
    where = next((odd for odd in (cause, problem) if getattr(odd, "node", None) is not None), None)
    text = getattr(cause, "error_message", None) or str(cause) or type(cause).__name__
    said = re.sub(r"^\w+\((['\"])(.*)\1\)$", r"\2", text.strip().splitlines()[-1])[:300]
    lines = (getattr(where, "src", None) or "").splitlines()
    line = getattr(getattr(where, "node", None), "lineno", 0)
    return f"`{lines[line - 1].strip()}`: {said}" if 0 < line <= len(lines) else said


if __name__ == "__main__":
    main()

"""Read the code that Inductor writes: which kernels it makes, in what order it calls them, what it leaves to libraries."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .readable import readable

_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.M)
_BODY = re.compile(r"^(\w+) = async_compile\.\w+\(.*?(r?'''|r?\"\"\")(.*?)(?:'''|\"\"\")", re.M | re.S)

#: helpers of the generated code that move no data: sizes, strides, views of memory
_NO_WORK = {
    "reinterpret_tensor",
    "_reinterpret_tensor",
    "_alloc_from_pool",
    "assert_size_stride",
    "wait_tensor",
}


@dataclass(frozen=True)
class Kernels:
    """The code that Inductor generated, one text a graph (forward, then backward if there was one).

    fused: the generated kernels in the order of the calls. extern: calls of ready-made ones (a matrix product, a
    convolution). loops: the loop nests in the generated kernels, each a walk through memory. On the CPU one kernel
    may hold several, one after another: fewer kernels is not less traffic there, fewer loops is. On a GPU
    (Triton) a kernel is one nest.
    """

    sources: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """All of it."""
        return "\n\n".join(self.sources)

    @property
    def fused(self) -> list[str]:
        return [name for name, own in self._calls() if own]

    @property
    def extern(self) -> list[str]:
        return [name for name, own in self._calls() if not own]

    @property
    def count(self) -> int:
        """Kernels called: generated and ready-made."""
        return sum(1 for _ in self._calls())

    @property
    def loops(self) -> int:
        return sum(_loops(text) for text in self.sources)

    def bodies(self) -> dict[str, str]:
        """The generated kernels' own source, C++ or Triton, by name; ``name (2)`` is the second graph's of that name."""
        found: dict[str, str] = {}
        for text in self.sources:
            for name, body in _bodies(text).items():
                again = sum(1 for known in found if known.partition(" ")[0] == name)
                found[f"{name} ({again + 1})" if again else name] = body
        return found

    @property
    def readable(self) -> str:
        """The generated kernels one after another, without casts, imports and braces that only a compiler needs."""
        return "\n\n".join(readable(name, body) for name, body in self.bodies().items())

    def counts(self) -> dict[str, Any]:
        """Plain numbers; all None where Inductor wrote nothing."""
        if not self.sources:
            return {"kernels": None, "fused": None, "extern": None, "loops": None}
        return {
            "kernels": self.count,
            "fused": len(self.fused),
            "extern": len(self.extern),
            "loops": self.loops,
        }

    def summary(self) -> str:
        def listed(names: list[str]) -> str:
            return f" ({', '.join(names[:4])}{', …' if len(names) > 4 else ''})" if names else ""

        fused = f"{len(self.fused)} generated{listed(self.fused)}, {self.loops} loop nests"
        return f"{fused}; {len(self.extern)} ready-made{listed(self.extern)}"

    def __repr__(self) -> str:
        return f"Kernels: {self.summary()}" if self.sources else "Kernels: none"

    def _calls(self) -> Iterator[tuple[str, bool]]:
        for text in self.sources:
            yield from called(text)


def called(text: str) -> Iterator[tuple[str, bool]]:
    """(name, whether generated) of each kernel called by one text of generated code, in order."""
    own = {name for name, _ in _DEFINED.findall(text)}
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a C++ wrapper (config.cpp_wrapper): its calls cannot be told from here
        yield from ((name, True) for name in dict.fromkeys(n for n, _ in _DEFINED.findall(text)))
        return
    # `call` runs the graph; with graph partitions, `partition_0` … hold its pieces; the branches of a torch.cond and
    # other graphs within the graph are functions of their own too
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    for function in functions:
        if function.name.startswith(("benchmark", "get_args")):
            continue
        calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
        for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
            name = ast.unparse(call.func)
            if name.removesuffix(".run") in own:
                yield name.removesuffix(".run"), True
            elif name.startswith(("extern_kernels.", "torch.ops.", "aten.")):
                if not _NO_WORK & set(name.split(".")):
                    yield name, False


def _bodies(text: str) -> dict[str, str]:
    return {name: body.strip() for name, _, body in _BODY.findall(text)}


def _loops(text: str) -> int:
    nests = {name: nested(body) for name, body in _bodies(text).items()}
    return sum(nests.get(name, 1) for name, own in called(text) if own)


def nested(body: str) -> int:
    """Loop nests of a C++ kernel: the outermost ``for``; 1 where the text is not C++ (a Triton kernel)."""
    if "for(" not in body.replace("for (", "for("):
        return 1
    nests, depth, inside = 0, 0, -1  # inside: the depth at which the nest we are in began
    for line in body.splitlines():
        if inside < 0 and re.match(r"\s*for ?\(", line):
            nests, inside = nests + 1, depth
            opened = False
        depth += line.count("{") - line.count("}")
        if inside >= 0:
            opened = opened or depth > inside
            if opened and depth <= inside:
                inside = -1
    return nests

"""Read the code that Inductor writes: which kernels it makes, in what order it calls them, what it leaves to libraries."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.M)
_BODY = re.compile(r"^(\w+) = async_compile\.\w+\(.*?(r?'''|r?\"\"\")(.*?)(?:'''|\"\"\")", re.M | re.S)
_NOISE = ("#include", "inductor_cpu_integer_div_error", "import ", "from ")
_CAST = re.compile(r"static_cast<int64_t>|static_cast<\w+>(?=\(-?[\d.]+\))|decltype\(\w+\)")

#: helpers of the generated code that move no data: sizes, strides, views of memory
_NO_WORK = set(
    "reinterpret_tensor _reinterpret_tensor _alloc_from_pool assert_size_stride wait_tensor".split()
)


@dataclass(frozen=True)
class Kernels:
    """The code that Inductor generated, one text a graph (forward, then backward if there was one).

    fused: the generated kernels in the order of the calls. extern: calls of ready-made ones (a matrix product, a
    convolution). loops: the loop nests in the generated kernels, each a walk through memory. On the CPU one kernel
    may hold several, one after another: fewer kernels is not less traffic there, fewer loops is. On a GPU
    (Triton) a kernel is one nest. See :func:`kernels`.
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
        texts: dict[str, str] = {}
        for text in self.sources:
            for name, body in _bodies(text).items():
                again = sum(1 for known in texts if known.partition(" ")[0] == name)
                texts[f"{name} ({again + 1})" if again else name] = body
        return texts

    @property
    def readable(self) -> str:
        """The generated kernels one after another, without casts, imports and braces that only a compiler needs."""
        return "\n\n".join(readable(name, body) for name, body in self.bodies().items())

    def counts(self) -> dict[str, Any]:
        """Plain numbers; all None where Inductor wrote nothing."""
        fused, extern = len(self.fused), len(self.extern)
        counts = {"kernels": fused + extern, "fused": fused, "extern": extern, "loops": self.loops}
        return counts if self.sources else dict.fromkeys(counts)

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


def readable(name: str, body: str) -> str:
    """The source of one generated kernel, shortened. Another language than C++ (Triton) loses its imports only."""
    lines = [line for line in body.splitlines() if line.strip() and not line.strip().startswith(_NOISE)]
    lines = [line for line in lines if "integer_div_error" not in line]
    if "{" not in map(str.strip, lines):
        return "\n".join(lines)
    start = [line.strip() for line in lines].index("{")
    head = " ".join(" ".join(lines[:start]).split())
    head = re.sub(r'^(extern "C" )?void kernel\(', f"{name}(", head)
    return "\n".join([f"{head} {{", *_written(_blocks(lines[start + 1 :])), "}"])


def _blocks(lines: list[str]) -> list[str | list]:  # type: ignore[type-arg]  # lists in lists, as deep as the code
    """Lines, and lists for what stands between braces; a block that holds one block and nothing else is that block."""
    stack: list[list] = [[]]  # type: ignore[type-arg]
    for line in (line.strip() for line in lines):
        if line == "{":
            stack.append([])
        elif line == "}":
            if len(stack) == 1:
                break
            done = stack.pop()
            only = done[0] if len(done) == 1 else None
            stack[-1].append(only if isinstance(only, list) else done)
        else:
            stack[-1].append(_plain(line))
    return stack[0]


def _written(block: list[str | list], indent: str = "    ") -> list[str]:  # type: ignore[type-arg]
    sentences: list[str] = []
    for part in block:
        if isinstance(part, str):
            sentences.append(indent + part)
            continue
        if sentences and sentences[-1].startswith(f"{indent}for"):
            sentences[-1] += " {"
        else:
            sentences.append(indent + "{")
        sentences += [*_written(part, indent + "    "), indent + "}"]
    return sentences


def _plain(line: str) -> str:
    """``a[static_cast<int64_t>(x0)]`` as ``a[x0]``, ``64L`` as ``64``."""
    line = re.sub(r"\b(\d+)L\b", r"\1", _CAST.sub("", line))
    opened: list[int] = []
    closes: dict[int, int] = {}
    for i, letter in enumerate(line):
        if letter in "([":
            opened.append(i)
        elif letter in ")]" and opened:
            closes[opened.pop()] = i
    dropped = set()
    for i, j in closes.items():
        twice = closes.get(i - 1) == j + 1  # ((…)) and [(…)]
        token = re.fullmatch(r"-?[\w.]+", line[i + 1 : j]) and not re.match(r"[\w>\])]", line[i - 1 : i])
        if line[i] == "(" and (twice or token):
            dropped |= {i, j}
    return "".join(letter for i, letter in enumerate(line) if i not in dropped)

"""Inductor's C++ with what only a compiler needs taken out: the loops, and what is read and stored in them."""

import re

_NOISE = ("#include", "inductor_cpu_integer_div_error", "import ", "from ")
_CAST = re.compile(r"static_cast<int64_t>|static_cast<\w+>(?=\(-?[\d.]+\))|decltype\(\w+\)")


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
    said: list[str] = []
    for part in block:
        if isinstance(part, str):
            said.append(indent + part)
            continue
        if said and said[-1].startswith(f"{indent}for"):
            said[-1] += " {"
        else:
            said.append(indent + "{")
        said += [*_written(part, indent + "    "), indent + "}"]
    return said


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
